"""What the rules of several primitives share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.formats import Format
from ipu.learn.tensor import Work
from ipu.machine.device import Device

__all__ = ["Saved", "check_broadcast", "free", "results_each", "same", "sum_to"]

Saved = tuple[Any, ...]


def same(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """The gradient as it is."""
    return gradient


def free(arrays: Sequence[Array], output: Array) -> Work:
    """The cost of what computes nothing."""
    return Work()


class results_each:  # noqa: N801  (reads as a function)
    """The cost of a rule with so many vector results for each element of its first argument."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, arrays: Sequence[Array], output: Array) -> Work:
        return Work(results=self.number * arrays[0].size)


def check_broadcast(name: str, x: Array, y: Array) -> None:
    """Refuse a y that does not broadcast to x."""
    if np.broadcast_shapes(x.shape, y.shape) != x.shape:
        raise ValueError(f"{name} of shape {y.shape} does not broadcast to {x.shape}; reshape it")


def sum_to(device: Device, gradient: Array, shape: tuple[int, ...], fmt: Format) -> Array:
    """The gradient summed over every axis along which an argument of this shape was broadcast.

    Rounding  in binary32 in C order, then once into fmt.
    """
    padded = (1,) * (gradient.ndim - len(shape)) + shape
    axes = tuple(a for a, n in enumerate(padded) if n == 1 and gradient.shape[a] > 1)
    if axes:
        gradient = device.reduce_sum(gradient, axes, fmt)
    return gradient.reshape(shape)


def count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """Elements that a reduction over these axes takes together."""
    return math.prod(shape[a] for a in axes)
