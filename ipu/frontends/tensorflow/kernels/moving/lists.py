"""Lists of tensors: what loops collect, as `tf.TensorArray` and gradients of `tf.while_loop` do.

A list is a value: a node that changes one gives a new one. An element that was never written is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.engine.values import numbers
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel

__all__ = ["TensorList", "add_lists", "no_list"]


@dataclass(frozen=True)
class TensorList:
    """Elements of one type; None for one that was never written.

    shape    of an element, with -1 for axes that are not known.
    """

    items: tuple[Any, ...]
    shape: tuple[int, ...]

    def put(self, index: int, item: Any) -> TensorList:
        """The list with another element; it grows where the index is its length."""
        if not 0 <= index <= len(self.items):
            raise ValueError(f"a list of {len(self.items)} tensors has no element {index}")
        return replace(self, items=(*self.items[:index], item, *self.items[index + 1 :]))


def _lists(*names: str) -> Callable[[Callable[[NodeSite], Run]], Callable[[NodeSite], Run]]:
    return kernel(*names, rounding="none", is_any=True, keeps=True)


def _shape(value: Any) -> tuple[int, ...]:
    """A shape from a tensor; a scalar -1 is one that is not known."""
    sizes = np.asarray(value)
    return tuple(int(n) for n in sizes) if sizes.ndim else ()


def _stacked(site: NodeSite, items: list[Any], shape: tuple[int, ...]) -> Array | NDArray[Any]:
    """Elements of a list as one tensor, in one format."""
    fmt = site.format_of(site.attr("element_dtype"))
    if not items:
        empty = (0, *(max(n, 0) for n in shape))
        kind = site.attr("element_dtype").as_numpy_dtype
        return site.device.zeros(empty, fmt) if fmt else np.zeros(empty, kind)
    if fmt is None:
        return np.stack(items)
    arrays = [site.device.cast(item, fmt) for item in items]
    return arrays[0].like(np.stack([array.carrier for array in arrays]))


def _item(site: NodeSite, elements: TensorList, index: int, shape: Any) -> Any:
    """An element; zeros of the shape that the list, or its reader, knows."""
    if not 0 <= index < len(elements.items):
        raise ValueError(
            f"node {site.node.name} reads element {index}; use 0 … {len(elements.items) - 1}"
        )
    item = elements.items[index]
    if item is not None:
        return item
    is_whole = elements.shape and all(n >= 0 for n in elements.shape)
    sizes = elements.shape if is_whole else _shape(shape)
    if any(n < 0 for n in sizes):
        written = [numbers(other).shape for other in elements.items if other is not None]
        sizes = written[0] if written else sizes
    fmt, kind = site.format_of(site.attr("element_dtype")), site.attr("element_dtype")
    return site.device.zeros(sizes, fmt) if fmt else np.zeros(sizes, kind.as_numpy_dtype)


def _rows(x: Any) -> tuple[Any, ...]:
    """A tensor's elements along its first axis."""
    values = [np.array(v, order="C") for v in numbers(x)]
    return tuple(x.like(v) for v in values) if isinstance(x, Array) else tuple(values)


@_lists("TensorListReserve")
def _reserve(site: NodeSite) -> Run:
    return lambda shape, count: TensorList((None,) * int(count), _shape(shape))


@_lists("EmptyTensorList")
def _empty(site: NodeSite) -> Run:
    return lambda shape, _: TensorList((), _shape(shape))


@_lists("TensorListFromTensor")
def _from_tensor(site: NodeSite) -> Run:
    return lambda x, shape: TensorList(_rows(x), tuple(x.shape[1:]))


@_lists("TensorListGetItem")
def _get(site: NodeSite) -> Run:
    return lambda elements, index, shape: _item(site, elements, int(index), shape)


@_lists("TensorListSetItem")
def _set(site: NodeSite) -> Run:
    return lambda elements, index, item: elements.put(int(index), item)


@_lists("TensorListPushBack")
def _push(site: NodeSite) -> Run:
    return lambda elements, item: elements.put(len(elements.items), item)


@_lists("TensorListPopBack")
def _pop(site: NodeSite) -> Run:
    def run(elements: TensorList, shape: Any) -> Any:
        item = _item(site, elements, len(elements.items) - 1, shape)
        return replace(elements, items=elements.items[:-1]), item

    return run


@_lists("TensorListStack")
def _stack(site: NodeSite) -> Run:
    def run(elements: TensorList, shape: Any) -> Any:
        items = [_item(site, elements, i, shape) for i in range(len(elements.items))]
        return _stacked(site, items, elements.shape or _shape(shape))

    return run


@_lists("TensorListGather")
def _gather(site: NodeSite) -> Run:
    def run(elements: TensorList, indices: Any, shape: Any) -> Any:
        items = [_item(site, elements, int(i), shape) for i in indices]
        return _stacked(site, items, elements.shape or _shape(shape))

    return run


@_lists("TensorListScatterV2")
def _scatter(site: NodeSite) -> Run:
    def run(x: Any, indices: Any, shape: Any, count: Any) -> TensorList:
        size = max(int(count), int(max(indices, default=-1)) + 1)
        items: list[Any] = [None] * size
        for index, item in zip(indices, _rows(x), strict=True):
            items[int(index)] = item
        return TensorList(tuple(items), tuple(x.shape[1:]))

    return run


@_lists("TensorListScatterIntoExistingList")
def _scatter_into(site: NodeSite) -> Run:
    def run(elements: TensorList, x: Any, indices: Any) -> TensorList:
        for index, item in zip(indices, _rows(x), strict=True):
            elements = elements.put(int(index), item)
        return elements

    return run


@_lists("TensorListSplit")
def _split(site: NodeSite) -> Run:
    def run(x: Any, shape: Any, lengths: Any) -> TensorList:
        ends = np.cumsum([int(n) for n in lengths])
        if len(x.carrier if isinstance(x, Array) else x) != (ends[-1] if len(ends) else 0):
            raise ValueError(
                f"node {site.node.name} splits {x.shape[0]} rows into {list(map(int, lengths))}; "
                "use lengths whose sum is the number of rows"
            )
        pieces = [np.array(v, order="C") for v in np.split(numbers(x), ends[:-1])]
        items = [x.like(v) for v in pieces] if isinstance(x, Array) else pieces
        return TensorList(tuple(items), _shape(shape))

    return run


@_lists("TensorListConcatV2", "TensorListConcat")
def _concat(site: NodeSite) -> Run:
    fmt, kind = site.format_of(site.attr("element_dtype")), site.attr("element_dtype")

    def run(elements: TensorList, *rest: Any) -> Any:
        items = [_row_item(site, elements, i, rest) for i in range(len(elements.items))]
        lengths = np.array([item.shape[0] for item in items], np.int64)
        if fmt is None:
            return np.concatenate(items or [np.zeros(0, kind.as_numpy_dtype)]), lengths
        arrays = [site.device.cast(item, fmt) for item in items]
        if not arrays:
            return site.device.zeros((0,), fmt), lengths
        return arrays[0].like(np.concatenate([array.carrier for array in arrays])), lengths

    return run


def _row_item(site: NodeSite, elements: TensorList, index: int, rest: tuple[Any, ...]) -> Any:
    """An element of a list that is concatenated; one that was never written has these rows."""
    shape, rows = elements.shape, [int(n) for n in rest[1]] if len(rest) > 1 else []
    if elements.items[index] is None and rest:
        shape = _shape(rest[0])
        shape = (rows[index], *shape[1:]) if index < len(rows) else shape
    return _item(site, replace(elements, shape=shape), index, shape)


@_lists("TensorListResize")
def _resize(site: NodeSite) -> Run:
    def run(elements: TensorList, size: Any) -> TensorList:
        items = elements.items[: int(size)]
        return replace(elements, items=items + (None,) * (int(size) - len(items)))

    return run


@_lists("TensorListLength")
def _length(site: NodeSite) -> Run:
    return lambda elements: np.array(len(elements.items), np.int32)


@_lists("TensorListElementShape")
def _element_shape(site: NodeSite) -> Run:
    kind = site.attr("shape_type").as_numpy_dtype
    return lambda elements: np.array(elements.shape, kind)


def no_list(elements: TensorList) -> TensorList:
    """A list of as many elements, none of them written."""
    return TensorList((None,) * len(elements.items), elements.shape)


def add_lists(site: NodeSite, lists: tuple[TensorList, ...]) -> TensorList:
    """The sums of elements, list after list; what was never written adds nothing."""
    first, *others = lists
    items = list(first.items)
    for other in others:
        for i, item in enumerate(other.items):
            before = items[i]
            items[i] = item if before is None else before
            if before is not None and item is not None:
                items[i] = ops.add.value(site.device, before, item)
    return replace(first, items=tuple(items))
