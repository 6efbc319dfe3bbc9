"""The host: what has no rule on the machine is computed in binary64 and rounded once.

The result is rounded by the machine's rounding into the format that the operation would have there,
with flags and random bits. Reports list these operations as HOST. float64 tensors stay binary64;
of complex64 ones both parts are rounded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

from fpsim.records.formats import BINARY32, Format
from ipu.frontends.torch.aten.table import Call, NoFormatError, result_dtype
from ipu.frontends.torch.values import EIGHTHS, FORMATS, tensors_of

__all__ = ["on_host"]

_WIDE = {
    torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128, **dict.fromkeys(EIGHTHS, torch.float64),
}


def on_host(call: Call, func: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The operation in binary64 on the host; floating-point results rounded once.

    Raises    NoFormatError for data types that no format stands for, and sparse results.
    """
    tensors: list[Any] = tensors_of(arguments, options)
    dtype = result_dtype(tensors)
    if dtype in (torch.float64, torch.complex128):
        return func(*arguments, **options)
    fmt = _format(call, tensors, dtype)

    def widened(x: Any) -> Any:
        if isinstance(x, torch.dtype):
            return _WIDE.get(x, x)
        if not isinstance(x, torch.Tensor) or x.dtype not in _WIDE:
            return x
        if x.is_complex():
            return x.to(torch.complex128)
        held = BINARY32 if call.memory.is_root(x) else fmt  # nothing is rounded before the result
        return torch.from_numpy(call.memory.read(x, held).carrier.copy()).to(torch.float64)

    wide, wide_options = tree_map(widened, (arguments, options))
    asked = options.get("dtype")
    if asked in (torch.float64, torch.complex128):
        return func(*wide, **wide_options)
    real = asked if asked in FORMATS or asked == torch.float32 else _real(dtype)

    def rounded(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        if x.layout is not torch.strided:
            raise NoFormatError("a sparse tensor has no arithmetic on the machine")
        if x.dtype == torch.complex128:
            parts = torch.view_as_real(x.resolve_conj().contiguous())
            return torch.complex(*rounded(parts).to(torch.float32).unbind(-1))
        if x.dtype != torch.float64:
            return x
        values = x.resolve_neg().contiguous().numpy()
        return call.memory.write(call.device.context(fmt).array(values), real)

    return tree_map(rounded, func(*_with_own_distances(func, wide), **wide_options))


def _with_own_distances(func: Any, arguments: Any) -> Any:
    """Arguments of a distance's gradient, which looks for the difference that is the maximum.

    The forward pass's distances were rounded and equal no binary64 difference any more.
    """
    if func is torch.ops.aten._cdist_backward.default:
        gradient, x, y, p, _ = arguments
        return gradient, x, y, p, torch.ops.aten._cdist_forward.default(x, y, p, None)
    if func is torch.ops.aten._pdist_backward.default:
        gradient, x, p, _ = arguments
        return gradient, x, p, torch.ops.aten._pdist_forward.default(x, p)
    return arguments


def _real(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype == torch.complex64 else dtype


def _format(call: Call, tensors: list[Any], dtype: torch.dtype) -> Format:
    """The format of the results."""
    if dtype != torch.complex64:
        return call.format_of(*tensors)
    return BINARY32 if call.memory.is_plain else call.policy.activations
