"""Operations that round nothing: views, moves, selections, comparisons, constants, random data.

Each floating-point number that they return is one that they read (or its sign changed, or its
whole part), a constant, or a random number of the host. Constants of a format that the dtype does
not name are rounded to nearest first.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["EXACT", "constants_of", "is_exact"]

_FACTORIES = """
    zeros ones empty full arange linspace logspace eye scalar_tensor empty_strided zeros_like
    ones_like empty_like full_like new_zeros new_ones new_empty new_full new_empty_strided rand
    randn randint randperm rand_like randn_like randint_like normal normal_
    normal_functional _efficientzerotensor
    uniform uniform_ bernoulli bernoulli_ random random_ exponential exponential_ log_normal_
    cauchy_ geometric_ multinomial fill zero tril_indices triu_indices complex empty_permuted
    hann_window hamming_window blackman_window bartlett_window kaiser_window
"""
_MOVES = """
    alias clone contiguous copy cat stack hstack vstack repeat flip roll rot90 tril triu
    index index_select gather take masked_select where masked_fill masked_scatter constant_pad_nd
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
    replication_pad3d diag_embed diag diagonal_copy scatter index_copy index_fill select_scatter
    slice_scatter diagonal_scatter as_strided_scatter as_strided_copy _unsafe_index _unsafe_view
    unsafe_split unsafe_chunk unsafe_split_with_sizes split_with_sizes_copy _reshape_alias
    _reshape_copy view_copy expand_copy permute_copy transpose_copy unfold_copy select_copy
    slice_copy squeeze_copy unsqueeze_copy t_copy detach_copy unbind_copy split_copy alias_copy
    select_backward slice_backward diagonal_backward embedding im2col pixel_shuffle
    pixel_unshuffle channel_shuffle repeat_interleave upsample_nearest1d upsample_nearest2d
    upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d max_unpool2d max_unpool3d lift lift_fresh lift_fresh_copy set_
    resize_ resize as_strided_ set_data swapaxes combinations
    value_selecting_reduction_backward block_diag _pad_circular resize_as_
    to_padded_tensor _pin_memory tril_ triu_ native_channel_shuffle _assert_async isin
    _local_scalar_dense record_stream masked_scatter_backward
    _pack_padded_sequence _pack_padded_sequence_backward _pad_packed_sequence
"""
_SELECTIONS = """
    sort topk kthvalue median nanmedian mode max min amax amin aminmax maximum minimum fmax fmin
    cummax cummin _cummax_helper _cummin_helper abs absolute neg negative positive sign sgn
    copysign floor ceil trunc round frac fix nan_to_num threshold hardshrink hardshrink_backward
    hardtanh_backward heaviside max_pool2d_with_indices max_pool3d_with_indices
    adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d msort
    real fmod nextafter unique_dim unique_consecutive _unique2 _unique
"""
_PREDICATES = """
    eq ne lt le gt ge isnan isinf isfinite isneginf isposinf isreal signbit logical_not logical_and
    logical_or logical_xor argmax argmin argsort nonzero nonzero_static nonzero_numpy any all
    equal allclose isclose is_nonzero searchsorted bucketize count_nonzero item is_same_size
    is_set_to sym_size sym_numel sym_stride sym_storage_offset size stride numel
    dense_dim _is_zerotensor is_pinned is_floating_point is_complex _has_same_storage_numel
    _nested_tensor_size result_type
"""

#: By name of the operation, without overload and without the _ of the in-place form.
EXACT = frozenset(" ".join((_FACTORIES, _MOVES, _SELECTIONS, _PREDICATES)).split())

#: Functional forms round a decimal place: round.decimals divides.
_NOT = frozenset({"aten::round.decimals", "aten::round_.decimals"})
_NAMESPACES = ("profiler", "prim", "rngprims")


def is_exact(func: Any) -> bool:
    """Whether an overload rounds nothing."""
    name = func._schema.name
    namespace, _, base = name.partition("::")
    if namespace in _NAMESPACES:
        return True
    if namespace != "aten" or f"{name}.{func._overloadname}" in _NOT:
        return False
    if func.is_view or torch.Tag.inplace_view in func.tags:
        return True
    return base in EXACT or base.removesuffix("_") in EXACT


def constants_of(func: Any) -> tuple[int | str, ...]:
    """Places of the arguments that are numbers of the result's kind."""
    arguments = func._schema.arguments
    return tuple(
        a.name if a.kwarg_only else i
        for i, a in enumerate(arguments)
        if str(a.type) in ("number", "Optional[number]", "float", "Optional[float]")
    )
