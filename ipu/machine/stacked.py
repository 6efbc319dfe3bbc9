"""Arrays of several replicas as one: each has its values, all have one shape and one format."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.types import Carrier

__all__ = ["NotTogetherError", "StackedArray", "StackedValues"]


class NotTogetherError(RuntimeError):
    """Something that replicas do one after the other."""


class StackedArray(Array):
    """The arrays of several replicas; its shape is that of one.

    Shapes    stack (replicas, *shape)

    >>> import fpsim as fp
    >>> x = StackedArray(np.ones((8, 2, 3), np.float32), fp.Context(fp.BINARY16))
    >>> x.shape, x.mT.shape, x[:, 1].shape
    ((2, 3), (3, 2), (2,))
    >>> x.carrier
    Traceback (most recent call last):
    ...
    ipu.machine.stacked.NotTogetherError: values of one replica
    """

    __slots__ = ("stack",)

    def __init__(self, stack: Carrier, context: Any) -> None:
        self.stack = stack
        self.context = context

    @property
    def carrier(self) -> NDArray[Any]:  # type: ignore[override]
        raise NotTogetherError("values of one replica")

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.stack.shape[1:]

    @property
    def ndim(self) -> int:  # type: ignore[override]
        return self.stack.ndim - 1

    @property
    def size(self) -> int:  # type: ignore[override]
        return math.prod(self.stack.shape[1:])

    def __len__(self) -> int:
        return int(self.stack.shape[1])

    def reshape(self, *shape: Any) -> StackedArray:
        if len(shape) == 1 and not isinstance(shape[0], int):
            shape = tuple(shape[0])
        return StackedArray(self.stack.reshape(len(self.stack), *shape), self.context)

    def transpose(self, *axes: Any) -> StackedArray:
        if len(axes) == 1 and not isinstance(axes[0], int):
            axes = tuple(axes[0])
        axes = axes or tuple(range(self.ndim))[::-1]
        order = 0, *(axis % self.ndim + 1 for axis in axes)
        return StackedArray(self.stack.transpose(order), self.context)

    @property
    def mT(self) -> StackedArray:
        return StackedArray(self.stack.swapaxes(-1, -2), self.context)

    def copy(self) -> StackedArray:
        return StackedArray(self.stack.copy(), self.context)

    def __getitem__(self, index: Any) -> StackedArray:
        places = index if isinstance(index, tuple) else (index,)
        if not all(place is None or isinstance(place, (int, slice)) for place in places):
            raise NotTogetherError("elements that an array names")
        return StackedArray(self.stack[:, *places], self.context)


class StackedValues:
    """What each replica has that is no number of a format: labels, masks.

    Shapes    stack (replicas, …)
    """

    __slots__ = ("stack",)

    def __init__(self, stack: NDArray[Any]) -> None:
        self.stack = stack

    def numbers_of(self, x: StackedArray) -> StackedArray:
        """The number of each row that its label names.

        Shapes    x (rows, columns), labels (rows): (rows).
        """
        values = np.take_along_axis(x.stack, self.stack[..., None], -1)
        return StackedArray(values[..., 0], x.context)

    def one_hot(self, x: StackedArray) -> StackedArray:
        """Rows with 1 at their label and 0 elsewhere, in the shape and format of x."""
        hot = np.zeros(x.stack.shape, x.stack.dtype)
        np.put_along_axis(hot, self.stack[..., None], 1.0, -1)
        return StackedArray(hot, x.context)
