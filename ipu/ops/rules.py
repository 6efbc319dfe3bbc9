"""What the rules of several primitives share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from ipu.machine.device import Device
from ipu.machine.vector import thread_cycles
from ipu.ops.primitive import OperationCost, Saved

__all__ = [
    "Saved", "check_broadcast", "count", "free", "read_nan", "same", "share", "steps", "sum_to",
]

Cost = Callable[[Sequence[Array], Array], OperationCost]


def same(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """The gradient as it is."""
    return gradient


def free(arrays: Sequence[Array], output: Array) -> OperationCost:
    """The cost of what computes nothing."""
    return OperationCost()


def steps(wide: Mapping[str, int] | None = None, /, **verbs: int) -> Cost:
    """The cost of so many operations of each kind for every element of the first argument.

    wide      of them in binary32, whatever the format of that argument.
    """

    @lru_cache(maxsize=256)  # every step has the same sizes
    def of(narrow: Format, size: int) -> OperationCost:
        counted = [(verb, narrow, times) for verb, times in verbs.items()]
        counted += [(verb, BINARY32, times) for verb, times in (wide or {}).items()]
        cycles = sum(times * thread_cycles(verb, fmt, size) for verb, fmt, times in counted)
        return OperationCost(results=size * sum(times for *_, times in counted), cycles=cycles)

    def cost(arrays: Sequence[Array], output: Array) -> OperationCost:
        return of(arrays[0].format, arrays[0].size)

    return cost


def check_broadcast(name: str, x: Array, y: Array) -> None:
    """Refuse a y that does not broadcast to x."""
    pairs = zip(reversed(y.shape), reversed(x.shape), strict=False)
    if y.shape == x.shape[x.ndim - y.ndim :]:
        return
    if y.ndim > x.ndim or any(n not in (1, m) for n, m in pairs):
        raise ValueError(f"{name} of shape {y.shape} does not broadcast to {x.shape}; reshape it")


def sum_to(device: Device, gradient: Array, shape: tuple[int, ...], fmt: Format) -> Array:
    """The gradient summed over every axis along which an argument of this shape was broadcast.

    Rounding  in binary32, as `Device.reduce_sum` adds, then once into fmt.
    """
    padded = (1,) * (gradient.ndim - len(shape)) + shape
    axes = tuple(a for a, n in enumerate(padded) if n == 1 and gradient.shape[a] != 1)
    if axes:
        gradient = device.reduce_sum(gradient, axes, fmt)
    return gradient.reshape(shape)


def count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """Elements that a reduction over these axes takes together."""
    return math.prod(shape[a] for a in axes)


def share(shape: tuple[int, ...], axes: tuple[int, ...]) -> float:
    """One over the elements that a reduction takes together; infinity of none.

    >>> share((4, 3), (0,)), share((0, 3), (0,))
    (0.25, inf)
    """
    n = count(shape, axes)
    return 1 / n if n else math.inf


def read_nan(device: Device, fmt: Format) -> None:
    """Raise what a maximum raises that reads a NaN: for those who choose by other means."""
    nan = device.from_host(np.nan, fmt)
    device.maximum(nan, nan)
