"""The layout of a queue: structure, types and shapes, fixed by its first element.

A device program is built for fixed shapes, so later elements have the same layout or are refused.
Leaves are numpy arrays or fpsim's Arrays; a queue holds copies, as a transfer does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.codes import unmasked
from fpsim.records.formats import Format
from ipu.feed.structures import Structure, leaves_of, rebuild, structure_of
from ipu.learn.tensor import Tensor

__all__ = ["Element", "LeafType", "Layout", "copied", "leaf_type", "stacked"]

Leaf = Array | NDArray[Any]


class LeafType(NamedTuple):
    """Format of an Array or dtype of an ndarray, and the shape."""

    kind: Format | np.dtype[Any]
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kind.name} {self.shape}"


def leaf_type(leaf: Leaf) -> LeafType:
    """What a leaf is made of."""
    return LeafType(leaf.format if isinstance(leaf, Array) else leaf.dtype, leaf.shape)


def copied(value: Any) -> Leaf:
    """A copy of a leaf: an Array stays one, everything else becomes an ndarray.

    Tensors of frameworks are asked by their method `numpy`.

    Raises    TypeError for what holds no numbers.

    >>> copied(0.5), copied(np.float32([1, 2])).dtype
    (array(0.5), dtype('float32'))
    """
    if isinstance(value, Tensor):
        value = value.array
    if isinstance(value, Array):
        return value.copy()
    if not isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        value = _from_framework(value)
    array = np.array(unmasked(value), order="C")
    if array.dtype.kind in "OSUMm":
        raise TypeError(f"it holds values of dtype {array.dtype}; a feed takes numbers")
    return array


def _from_framework(value: Any) -> Any:
    """The numbers of a framework's tensor, without its tape and from its device."""
    for method in ("detach", "cpu"):
        if callable(getattr(value, method, None)):
            value = getattr(value, method)()
    if callable(getattr(value, "numpy", None)):
        return value.numpy()
    raise TypeError(
        f"it holds a {type(value).__name__}; a feed takes arrays, numbers and tensors that have a "
        "method numpy()"
    )


def stacked(leaves: Sequence[Leaf], like: LeafType, template: Leaf) -> Leaf:
    """Leaves of one type along a new first axis.

    template    any leaf of that type: it gives the context of Arrays.

    Shapes      (n, *shape), also for n = 0.
    """
    if isinstance(template, Array):
        carriers = [leaf.carrier for leaf in leaves if isinstance(leaf, Array)]
        return template.like(_joined(carriers, like.shape, template.carrier.dtype))
    assert isinstance(like.kind, np.dtype)
    return _joined(leaves, like.shape, like.kind)  # type: ignore[arg-type]


def _joined(
    arrays: Sequence[NDArray[Any]], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    return np.stack(arrays) if arrays else np.empty((0, *shape), dtype)


class Element(NamedTuple):
    """Leaves on their way through a queue, and their bytes in packed storage."""

    leaves: list[Leaf]
    nbytes: int


class Layout:
    """Structure and leaf types of a queue's elements.

    >>> layout = Layout({"x": np.zeros(2, np.float32)})
    >>> layout.read({"x": np.ones(2, np.float32)}).nbytes
    8
    >>> layout.read({"x": np.ones(3, np.float32)})
    Traceback (most recent call last):
    ...
    ValueError: it is float32 (3,) at ['x'], not float32 (2,)
    """

    def __init__(self, first: Any) -> None:
        self.structure: Structure = structure_of(first)
        leaves = self._copies(first)
        self.types = tuple(leaf_type(leaf) for leaf in leaves)
        self._templates = [_emptied(leaf) for leaf in leaves]
        for path, of in zip(self.structure.paths, self.types, strict=True):
            if 0 in of.shape:
                raise ValueError(f"it is {of}{_at(path)}, without any number; leave it out")

    def read(self, value: Any) -> Element:
        """Copies of a value's leaves.

        Raises    TypeError for another structure or no numbers, ValueError for other shapes or
                  types.
        """
        leaves = self._copies(value)
        nbytes = 0
        for number, (leaf, expected) in enumerate(zip(leaves, self.types, strict=True)):
            actual = leaf_type(leaf)
            if actual != expected:
                path = self.structure.paths[number]
                raise ValueError(f"it is {actual}{_at(path)}, not {expected}")
            nbytes += leaf.storage_bytes if isinstance(leaf, Array) else leaf.nbytes
        return Element(leaves, nbytes)

    def _copies(self, value: Any) -> list[Leaf]:
        return [copied(leaf) for leaf in leaves_of(value, self.structure)]

    def value(self, leaves: Sequence[Leaf]) -> Any:
        """The leaves in their structure."""
        return rebuild(self.structure, leaves)

    def stack(self, elements: Sequence[Sequence[Leaf]]) -> Any:
        """Elements along a new first axis, in their structure."""
        by_leaf = [[leaves[i] for leaves in elements] for i in range(len(self.types))]
        columns = zip(by_leaf, self.types, self._templates, strict=True)
        return rebuild(self.structure, [stacked(*one) for one in columns])


def _emptied(leaf: Leaf) -> Leaf:
    """An empty leaf of that kind, so that a layout keeps no element's memory."""
    if isinstance(leaf, Array):
        return leaf.like(np.empty(0, leaf.carrier.dtype))
    return np.empty(0, leaf.dtype)


def _at(path: str) -> str:
    return f" at {path}" if path else ""
