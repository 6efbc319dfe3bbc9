"""Shapes and moves: values go elsewhere as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from fpsim.array import Array
from ipu.frontends.tensorflow.engine.values import numbers
from ipu.frontends.tensorflow.kernels.moving.lists import no_list
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel, moved, single

__all__: list[str] = []

_NONE = "none"
Enter = Callable[[Callable[[NodeSite], Run]], Callable[[NodeSite], Run]]


def _move(*names: str) -> Enter:
    return kernel(*names, rounding=_NONE, is_any=True, keeps=True)


def _join(*names: str) -> Enter:
    """What puts several tensors together takes them in one format."""
    return kernel(*names, rounding="none, in one format", is_any=True)


def _joined(values: Sequence[Any], join: Any) -> Any:
    """Arrays of one format, or ndarrays, as one."""
    joined = join([numbers(value) for value in values])
    first = values[0]
    return first.like(joined) if isinstance(first, Array) else joined


@_move("Reshape")
def _reshape(site: NodeSite) -> Run:
    return lambda x, shape: moved(x, lambda v: v.reshape(_inferred(v.shape, shape)))


def _inferred(before: tuple[int, ...], shape: NDArray[Any]) -> tuple[int, ...]:
    """The new shape with a number in the place of -1.

    Where the shape asks for no elements, axes of none are not counted, as in TensorFlow.
    """
    asked = [int(n) for n in shape]
    if -1 in asked and 0 in asked:
        others = math.prod(n for n in asked if n > 0)
        asked[asked.index(-1)] = math.prod(n for n in before if n) // others
    return tuple(asked)


@_move("ExpandDims")
def _expand_dims(site: NodeSite) -> Run:
    return lambda x, axis: moved(x, lambda v: np.expand_dims(v, int(axis)))


@_move("Squeeze")
def _squeeze(site: NodeSite) -> Run:
    axes = tuple(site.attr("squeeze_dims")) or None
    return lambda x: moved(x, lambda v: np.squeeze(v, axes))


@_move("Transpose")
def _transpose(site: NodeSite) -> Run:
    return lambda x, order: moved(x, lambda v: np.ascontiguousarray(v.transpose(order)))


@_move("Tile")
def _tile(site: NodeSite) -> Run:
    return lambda x, times: moved(x, lambda v: np.tile(v, times))


@_move("BroadcastTo")
def _broadcast_to(site: NodeSite) -> Run:
    return lambda x, shape: moved(x, lambda v: np.array(np.broadcast_to(v, tuple(shape))))


@_move("ReverseV2")
def _reverse(site: NodeSite) -> Run:
    return lambda x, axes: moved(x, lambda v: np.flip(v, tuple(int(a) for a in axes)).copy())


@_move("Fill")
def _fill(site: NodeSite) -> Run:
    return lambda shape, value: moved(value, lambda v: np.full(tuple(shape), v, v.dtype))


@_move("ZerosLike")
def _zeros_like(site: NodeSite) -> Run:
    if site.node.outputs[0].dtype == tf.variant:
        return no_list
    return lambda x: moved(x, np.zeros_like)


@_move("OnesLike")
def _ones_like(site: NodeSite) -> Run:
    return lambda x: moved(x, np.ones_like)


@_join("Pack")
def _pack(site: NodeSite) -> Run:
    axis = site.attr("axis")
    return lambda *values: _joined(values, lambda carriers: np.stack(carriers, axis))


@_move("Unpack")
def _unpack(site: NodeSite) -> Run:
    axis = site.attr("axis")

    def run(x: Any) -> Any:
        pieces = np.moveaxis(numbers(x), axis, 0)
        copies = [np.array(piece, order="C") for piece in pieces]
        return single([x.like(piece) if isinstance(x, Array) else piece for piece in copies])

    return run


@_join("ConcatV2")
def _concat(site: NodeSite) -> Run:
    def run(*values: Any) -> Any:
        *parts, axis = values
        return _joined(parts, lambda carriers: np.concatenate(carriers, int(axis)))

    return run


@_move("Split")
def _split(site: NodeSite) -> Run:
    count = site.attr("num_split")

    def run(axis: Any, x: Any) -> Any:
        ends = [x.shape[int(axis)] // count * i for i in range(1, count)]
        return _pieces(x, ends, int(axis))

    return run


@_move("SplitV")
def _split_v(site: NodeSite) -> Run:
    def run(x: Any, sizes: Any, axis: Any) -> Any:
        counts = [int(n) for n in sizes]
        rest = x.shape[int(axis)] - sum(n for n in counts if n >= 0)
        ends = np.cumsum([rest if n < 0 else n for n in counts])[:-1]
        return _pieces(x, list(ends), int(axis))

    return run


def _pieces(x: Any, ends: list[int], axis: int) -> Any:
    pieces = [np.ascontiguousarray(piece) for piece in np.split(numbers(x), ends, axis)]
    results = [x.like(piece) if isinstance(x, Array) else piece for piece in pieces]
    return single(results)


@_move("Slice")
def _slice(site: NodeSite) -> Run:
    def run(x: Any, begin: Any, size: Any) -> Any:
        index = tuple(
            slice(int(b), None if n < 0 else int(b + n)) for b, n in zip(begin, size, strict=True)
        )
        return moved(x, lambda v: np.array(v[index]))

    return run


@_move("StridedSlice")
def _strided_slice(site: NodeSite) -> Run:
    masks = _masks(site)

    def run(x: Any, begin: Any, end: Any, strides: Any) -> Any:
        index = _index(begin, end, strides, masks)
        return moved(x, lambda v: np.array(v[index]))

    return run


@_move("StridedSliceGrad")
def _strided_slice_gradient(site: NodeSite) -> Run:
    masks = _masks(site)

    def run(shape: Any, begin: Any, end: Any, strides: Any, gradient: Any) -> Any:
        index = _index(begin, end, strides, masks)

        def spread(values: Any) -> NDArray[Any]:
            field = np.zeros(tuple(shape), values.dtype)
            field[index] = values
            return field

        return moved(gradient, spread)

    return run


def _masks(site: NodeSite) -> tuple[int, ...]:
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    return tuple(int(site.attr(f"{name}_mask")) for name in names)


def _index(begin: Any, end: Any, strides: Any, masks: tuple[int, ...]) -> tuple[Any, ...]:
    """numpy's index of a strided slice."""
    no_begin, no_end, ellipsis, new_axis, shrink = masks
    index: list[Any] = []
    for i, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        bit = 1 << i
        if ellipsis & bit:
            index.append(Ellipsis)
        elif new_axis & bit:
            index.append(None)
        elif shrink & bit:
            index.append(int(first))
        else:
            start = None if no_begin & bit else int(first)
            index.append(slice(start, None if no_end & bit else int(last), int(step)))
    return tuple(index)


@_move("Pad")
def _pad(site: NodeSite) -> Run:
    return lambda x, paddings: moved(x, lambda v: np.pad(v, _pairs(paddings)))


@_join("PadV2")
def _pad_with(site: NodeSite) -> Run:
    def run(x: Any, paddings: Any, value: Any) -> Any:
        fill = numbers(value)
        return moved(x, lambda v: np.pad(v, _pairs(paddings), constant_values=fill))

    return run


@_move("MirrorPad")
def _mirror_pad(site: NodeSite) -> Run:
    mode: Any = site.attr("mode").decode().lower()
    return lambda x, paddings: moved(x, lambda v: np.pad(v, _pairs(paddings), mode=mode))


def _pairs(paddings: Any) -> list[tuple[int, int]]:
    return [(int(before), int(after)) for before, after in paddings]


# Shapes -------------------------------------------------------------------------------------------


@_move("Shape")
def _shape(site: NodeSite) -> Run:
    kind = site.attr("out_type").as_numpy_dtype
    return lambda x: np.array(x.shape, kind)


@_move("ShapeN")
def _shape_n(site: NodeSite) -> Run:
    kind = site.attr("out_type").as_numpy_dtype

    def run(*values: Any) -> Any:
        return single([np.array(x.shape, kind) for x in values])

    return run


@_move("Size")
def _size(site: NodeSite) -> Run:
    kind = site.attr("out_type").as_numpy_dtype
    return lambda x: np.array(x.size, kind)


@_move("Rank")
def _rank(site: NodeSite) -> Run:
    return lambda x: np.array(x.ndim, np.int32)


# Choices ------------------------------------------------------------------------------------------


@_join("SelectV2")
def _select_v2(site: NodeSite) -> Run:
    return lambda where, x, y: _joined((x, y), lambda carriers: np.where(where, *carriers))


@_join("Select")
def _select(site: NodeSite) -> Run:
    """A vector of conditions chooses rows."""

    def run(where: Any, x: Any, y: Any) -> Any:
        rows = where.reshape(where.shape + (1,) * (x.ndim - where.ndim)) if where.ndim else where
        return _joined((x, y), lambda carriers: np.where(rows, *carriers))

    return run


@_join("OneHot")
def _one_hot(site: NodeSite) -> Run:
    axis = site.attr("axis")

    def run(indices: Any, depth: Any, on: Any, off: Any) -> Any:
        hot = np.expand_dims(indices, axis if axis >= 0 else indices.ndim)
        places = np.arange(int(depth))
        shape = [1] * (indices.ndim + 1)
        shape[axis if axis >= 0 else indices.ndim] = int(depth)
        is_hot = hot == places.reshape(shape)
        return _joined((on, off), lambda carriers: np.where(is_hot, *carriers))

    return run
