"""Formats and shapes: casts round once, everything else moves values and computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.records.evidence import Evidence
from fpsim.records.formats import Format
from ipu.machine.device import Device
from ipu.ops.primitive import Primitive
from ipu.ops.rules import Saved, free, same, steps

__all__ = [
    "cast", "concat", "pad", "recomputation_checkpoint", "reshape", "strided_slice", "transpose",
]

Paddings = Sequence[tuple[int, int]]
Index = slice | tuple[slice, ...]


def _cast(device: Device, x: Array, *, dtype: Format) -> tuple[Array, Saved]:
    return device.cast(x, dtype), (x.format,)


def _cast_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """The cast reversed: the gradient goes back to the format that was cast."""
    return device.cast(gradient, saved[0])


def _recomputation_checkpoint(device: Device, x: Array) -> tuple[Array, Saved]:
    return x, (x,)


def _reshape(device: Device, x: Array, *, shape: tuple[int, ...]) -> tuple[Array, Saved]:
    return x.reshape(shape), (x.shape,)


def _reshape_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return gradient.reshape(saved[0])


def _transpose(device: Device, x: Array, *, axes: tuple[int, ...] | None = None) -> Any:
    return x.transpose(axes), ()


def _transpose_x(
    device: Device, gradient: Array, saved: Saved, *, axes: tuple[int, ...] | None = None
) -> Array:
    """The inverse permutation; sorting gives it where no axis is counted from the end."""
    if axes is None:
        return gradient.transpose(None)
    axes = np.lib.array_utils.normalize_axis_tuple(axes, gradient.ndim, "axes")
    return gradient.transpose(tuple(np.argsort(axes)))


def _concat(device: Device, x: Array, y: Array, *, axis: int) -> tuple[Array, Saved]:
    x.context.core.carriers((x, y))  # refuses two formats
    joined = np.concatenate([x.carrier, y.carrier], axis)
    return Array(joined, device.context(x.format)), (x.shape[axis],)


def _concat_x(device: Device, gradient: Array, saved: Saved, *, axis: int) -> Array:
    return _split(gradient, saved[0], axis)[0]


def _concat_y(device: Device, gradient: Array, saved: Saved, *, axis: int) -> Array:
    return _split(gradient, saved[0], axis)[1]


def _split(gradient: Array, at: int, axis: int) -> list[Array]:
    return [Array(half, gradient.context) for half in np.split(gradient.carrier, [at], axis)]


def _pad(device: Device, x: Array, *, paddings: Paddings) -> tuple[Array, Saved]:
    return Array(np.pad(x.carrier, paddings), device.context(x.format)), (x.shape,)


def _pad_x(device: Device, gradient: Array, saved: Saved, *, paddings: Paddings) -> Array:
    (shape,) = saved
    return gradient[tuple(slice(b, b + n) for (b, _), n in zip(paddings, shape, strict=True))]


def _strided_slice(device: Device, x: Array, *, index: Index) -> tuple[Array, Saved]:
    slices = index if isinstance(index, tuple) else (index,)
    if not all(isinstance(part, slice) for part in slices):
        raise TypeError(f"index={index!r} does not consist of slices; use np.s_[:, ::2]")
    return x[slices], (x.shape,)


def _strided_slice_x(device: Device, gradient: Array, saved: Saved, *, index: Index) -> Array:
    spread = device.zeros(saved[0], gradient.format)
    spread.carrier[index] = gradient.carrier
    return spread


_MOVED = "none"
_MOVES = "docs/semantics.md §6: what only moves values rounds nothing"

#: x in the format `dtype`.
cast = Primitive(
    "cast", _cast, (_cast_x,), cost=steps(cast=1), rounding="once", gradient="once",
    evidence=Evidence.DOCUMENTED, source="poplibs, popops::cast",
)
#: x, which recomputation keeps: what follows is computed again from here.
recomputation_checkpoint = Primitive(
    "recomputation_checkpoint", _recomputation_checkpoint, (same,), "none", free, rounding=_MOVED,
    gradient=_MOVED, source=_MOVES,
)
#: x in another `shape`.
reshape = Primitive(
    "reshape", _reshape, (_reshape_x,), "none", free, rounding=_MOVED, gradient=_MOVED,
    source=_MOVES,
)
#: x with its axes in another order (default: reversed).
transpose = Primitive(
    "transpose", _transpose, (_transpose_x,), "none", free, rounding=_MOVED, gradient=_MOVED,
    source=_MOVES,
)
#: x and y one after the other along `axis`.
concat = Primitive(
    "concat", _concat, (_concat_x, _concat_y), "none", free, rounding=_MOVED, gradient=_MOVED,
    source=_MOVES,
)
#: x with zeros around it: `paddings`, (before, after) for each axis.
pad = Primitive(
    "pad", _pad, (_pad_x,), "none", free, rounding=_MOVED, gradient=_MOVED, source=_MOVES
)
#: The elements of x at `index`: a slice for each of the first axes.
strided_slice = Primitive(
    "strided_slice", _strided_slice, (_strided_slice_x,), "none", free, rounding=_MOVED,
    gradient=_MOVED, source=_MOVES,
)
