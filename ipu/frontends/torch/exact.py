"""Operations that round nothing: views, moves, selections, comparisons, constants, random data.

Each floating-point number that they return is one that they read (or its sign changed, or its
whole part), a constant, or a random number of the host. Constants of a format that the dtype does
not name are rounded to nearest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from ipu.frontends.torch.aten import Call
from ipu.frontends.torch.values import (
    FORMATS,
    Memory,
    round_in_place,
    tensors_of,
    to_narrow,
    widest,
)
from ipu.ops.bounds import number_of
from ipu.run.account import Account

__all__ = ["EXACT", "OF_REAL_NUMBERS", "Move", "constants_of", "is_exact"]

_FACTORIES = """
    zeros ones empty full arange linspace logspace eye scalar_tensor empty_strided zeros_like
    ones_like empty_like full_like new_zeros new_ones new_empty new_full new_empty_strided
    _efficientzerotensor fill zero tril_indices triu_indices complex empty_permuted
    hann_window hamming_window blackman_window bartlett_window kaiser_window
"""
_RANDOM = """
    rand randn randint randperm rand_like randn_like randint_like normal normal_functional uniform
    bernoulli random exponential log_normal cauchy geometric multinomial poisson binomial
    _standard_gamma _sample_dirichlet
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
    copysign floor ceil trunc round frac fix threshold heaviside
    max_pool2d_with_indices max_pool3d_with_indices
    adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d msort
    real unique_dim unique_consecutive _unique2 _unique
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
EXACT = frozenset(" ".join((_FACTORIES, _RANDOM, _MOVES, _SELECTIONS, _PREDICATES)).split())
#: Random numbers are of the host: in a tensor that holds a format they are rounded to nearest.
RANDOM = frozenset(_RANDOM.split())
#: Of complex numbers these compute.
OF_REAL_NUMBERS = frozenset({"abs", "absolute", "sgn", "sign"})

#: round.decimals divides; the mean and the deviation of normal are tensors that are computed with.
_NOT = frozenset(
    f"aten::{name}{form}.{overload}"
    for form in ("", "_")
    for name, overload in (
        ("round", "decimals"), ("normal", "Tensor_float"), ("normal", "float_Tensor"),
        ("normal", "Tensor_Tensor"),
    )
)
_NAMESPACES = ("profiler", "prim", "rngprims")
#: Moves in which torch converts numbers of one data type into another one: into that of the first
#: tensor, and of what is written.
_INTO_FIRST = frozenset({"masked_fill", "index_fill", "fill"})
_INTO_WRITTEN = _INTO_FIRST | {"cat", "stack", "hstack", "vstack"}


def is_exact(func: Any) -> bool:
    """Whether an overload rounds nothing, of real numbers."""
    name = func._schema.name
    namespace, _, base = name.partition("::")
    if namespace in _NAMESPACES:
        return True
    if namespace != "aten" or f"{name}.{func._overloadname.removesuffix('_out')}" in _NOT:
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


class Move:
    """Runs one overload as it is; results keep the format of what they were taken from.

    written    places of the arguments that it writes: numbers from indices, names of keywords.
    call       makes the `Call` of an operation.
    """

    def __init__(
        self, func: Any, written: Sequence[int | str], memory: Memory, account: Account,
        call: Callable[[], Call],
    ) -> None:
        self._func, self._name, self._written = func, str(func), written
        self._memory, self._account, self._call = memory, account, call
        base = func._schema.name.partition("::")[2].removesuffix("_")
        self._is_random, self._is_empty = base in RANDOM, "empty" in base
        self._is_choice = str(func) == "aten.where.self"
        self._converts = base in (_INTO_WRITTEN if written else _INTO_FIRST) or self._is_choice
        # What random numbers are drawn with is no number of the result.
        self._constants = () if self._is_random else constants_of(func)

    def plain(self, args: Any, kwargs: Any) -> Any:
        """Where every tensor holds the format of its data type."""
        self._account.add("exact", self._name, 0)
        if self._converts:
            args = self._fitted(self._taker(args, kwargs), args)
        result = self._func(*args, **kwargs)
        if self._memory.births is not None:
            self._memory.moved(tensors_of(args, kwargs), result)
        return result

    def marked(self, args: Any, kwargs: Any) -> Any:
        """Where float32 tensors hold formats of the policy."""
        memory = self._memory
        self._account.add("exact", self._name, 0)
        flat = tensors_of(args, kwargs)
        formats: set[Format | None] = set()
        for x in flat:
            if x.dtype is torch.float32:
                formats.add(memory.format_of(x))
        held = {fmt for fmt in formats if fmt is not None}
        constants: list[Array] = []
        if self._constants and held and held != {BINARY32}:
            args, kwargs = self._with_constants(flat, args, kwargs, constants)
        if self._written:
            return self._into(args, kwargs, constants)
        if self._converts and (taker := self._taker(args, kwargs)).dtype in FORMATS:
            args = self._fitted(taker, args)
        result = self._func(*args, **kwargs)
        memory.moved(flat, result, constants)
        if held and None not in formats:
            fmt, is_gradient = widest(held), any(map(memory.is_gradient, flat))
            copies_root = is_gradient and fmt == BINARY32 and any(map(memory.is_root, flat))
            for tensor in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32:
                    if self._is_random and fmt != BINARY32:
                        round_in_place(tensor, fmt)
                    memory.mark(tensor, fmt, is_gradient)
                    if copies_root:
                        self._round_root(tensor)
        return result

    def _round_root(self, copy: torch.Tensor) -> None:
        """The gradient of a loss, copied for every summand, is a gradient as all others."""
        memory, call = self._memory, self._call()
        fmt = call.policy.activations
        if fmt != BINARY32 and not call.is_update and not memory.is_root(copy):
            if not self._is_empty:  # else there are no numbers yet, and no flags of them
                rounded = memory.write(memory.read(copy, fmt), copy.dtype, is_gradient=True)
                copy.copy_(rounded)
            memory.mark(copy, fmt, is_gradient=True)

    def _into(self, args: Any, kwargs: Any, constants: Sequence[Array]) -> Any:
        """In place: numbers of another format are cast first, those from outside rounded."""
        memory = self._memory
        target = self._taker(args, kwargs)
        held = memory.format_of(target) if isinstance(target, torch.Tensor) else None
        result = self._func(*self._fitted(target, args), **kwargs)
        if constants:
            memory.moved((target,), target, constants)
        if held not in (None, BINARY32) and target.dtype == torch.float32:
            round_in_place(target, held)
        if held is not None and memory.format_of(target) is None:
            memory.mark(target, held)  # another storage, as of a deep copy
        return result

    def _taker(self, args: Any, kwargs: Any) -> Any:
        """What takes the numbers of others: what is written, else what has the result's type."""
        if self._written:
            place = self._written[0]
            return kwargs.get(place) if isinstance(place, str) else args[place]
        if self._is_choice:
            _, x, y = args
            return x if x.dtype == torch.result_type(x, y) else y
        return args[0]

    def _fitted(self, target: Any, args: Any) -> Any:
        """The arguments in the format of the tensor that takes their numbers."""
        held = self._memory.format_of(target) if isinstance(target, torch.Tensor) else None
        if held is None:
            return args
        return tuple(x if x is target else self._cast(x, held, target.dtype) for x in args)

    def _cast(self, x: Any, held: Format, dtype: torch.dtype) -> Any:
        """A tensor of another format, or those in a list, by the device."""
        if isinstance(x, (list, tuple)):
            return [self._cast(item, held, dtype) for item in x]
        if not isinstance(x, torch.Tensor):
            return x
        if x.dtype != dtype and not (self._converts and dtype in FORMATS):
            return x
        if x.dtype == torch.float64:
            return to_narrow(x, dtype)
        if self._memory.format_of(x) in (None, held):
            return x
        self._call()
        return self._memory.write(self._memory.read(x, held), dtype)

    def _with_constants(
        self, flat: Any, args: Any, kwargs: Any, constants: list[Array]
    ) -> Any:
        """Numbers among the arguments, as constants of the format that is computed in.

        They are appended to `constants`: the result comes from what changed in them.
        """
        call, places = self._call(), self._constants
        fmt = call.format_of(*flat)

        def constant(x: Any) -> Any:
            is_number = isinstance(x, (int, float)) and not isinstance(x, bool)
            if not is_number:
                return x
            rounded = call.constant(x, fmt)
            if isinstance(rounded, Array):
                constants.append(rounded)
            return number_of(rounded)

        args = tuple(constant(x) if i in places else x for i, x in enumerate(args))
        return args, {k: constant(x) if k in places else x for k, x in kwargs.items()}
