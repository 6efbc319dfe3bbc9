"""The largest and the smallest number of a tensor or of its rows, and where it stands.

They follow the device's rule for NaN (`max_nan`), values and indices alike. Results have the format
of what they are chosen from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from fpsim.records.formats import BINARY32
from ipu import ops
from ipu.frontends.torch.aten.choosing import largest_by
from ipu.frontends.torch.aten.table import Call, NoFormatError, aten
from ipu.frontends.torch.values import FORMATS
from ipu.ops.primitive import Primitive
from ipu.ops.reductions import first_index

__all__: list[str] = []


class _Chosen(NamedTuple):
    """Numbers, and their indices as torch counts them."""

    values: torch.Tensor
    indices: torch.Tensor


def _largest(call: Call, row: Primitive, x: torch.Tensor, dim: Any, keepdim: bool) -> _Chosen:
    """By the row, in the format that the tensor holds."""
    if x.dtype not in FORMATS and x.dtype != torch.float32:
        raise NoFormatError(f"{x.dtype} is compared on the host")
    memory, held = call.memory, call.memory.format_of(x)
    dims = range(x.ndim) if dim is None or dim == () or dim == [] else dim
    axes = tuple(d % x.ndim for d in ((dims,) if isinstance(dims, int) else dims))
    array = memory.read(x, held or FORMATS.get(x.dtype, BINARY32))
    largest, saved = row.forward(call.device, array, axis=axes, keepdims=keepdim)
    values = torch.from_numpy(np.array(largest.carrier)).to(x.dtype)
    indices = torch.from_numpy(first_index(saved).astype("int64")).reshape(values.shape)
    if held is not None:
        memory.mark(values, held, memory.is_gradient(x))
    return _Chosen(values, indices)


def _so_far(name: str, row: Primitive, *, negative: bool) -> None:
    @aten(f"{name}.default", of=row)
    def along(call: Call, x: torch.Tensor, dim: int) -> Any:
        """Of equal numbers the index is that of the last, as torch has it."""
        if not x.numel() or not x.ndim:
            return NotImplemented
        running = torch.ops.aten.cummax.default
        return largest_by(call, x, lambda v: running(v, dim), negative=negative)


_so_far("cummax", ops.reduce_max, negative=False)
_so_far("cummin", ops.reduce_min, negative=True)


def _enter(name: str, row: Primitive) -> None:
    @aten(f"{name}.default", of=row)
    def of_all(call: Call, x: Any) -> Any:
        return _largest(call, row, x, None, False).values if x.numel() else NotImplemented

    @aten(f"{name}.dim", of=row)
    def along(call: Call, x: Any, dim: int, keepdim: bool = False) -> Any:
        if not x.numel() or not x.ndim:
            return NotImplemented
        return tuple(_largest(call, row, x, dim, keepdim))

    @aten(f"a{name}.default", of=row)
    def over(call: Call, x: Any, dim: Any = (), keepdim: bool = False) -> Any:
        if not x.numel() or not x.ndim:
            return NotImplemented
        return _largest(call, row, x, dim, keepdim).values

    @aten(f"arg{name}.default", of=row)
    def where(call: Call, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if not x.numel() or not x.ndim:
            return NotImplemented
        return _largest(call, row, x, dim, keepdim).indices


_enter("max", ops.reduce_max)
_enter("min", ops.reduce_min)


@aten("aminmax.default", of=(ops.reduce_min, ops.reduce_max))
def _aminmax(call: Call, x: torch.Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    if not x.numel() or not x.ndim:
        return NotImplemented
    return tuple(_largest(call, row, x, dim, keepdim).values
                 for row in (ops.reduce_min, ops.reduce_max))
