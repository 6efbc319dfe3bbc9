"""Functions of one operand that compute in binary32 inside and are rounded once at the end.

Their gradients are the slope, in binary32, times the incoming gradient, rounded once. Values of
many elements of 16 bits are read from tables (`ipu.ops.tabulated`), with equal bits and flags.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from ipu.machine.device import Device
from ipu.machine.reference import wide
from ipu.ops.in_one_call import in_one_call
from ipu.ops.primitive import Primitive, Saved
from ipu.ops.rules import steps
from ipu.ops.tabulated import Function, tabulated

__all__ = ["INSIDE", "curve", "rounded_curve", "selected", "sloped"]

INSIDE = "binary32 inside, once at the end"


def selected(where: Any, x: Array, y: Array) -> Array:
    """x where true, y elsewhere; nothing is computed."""
    return x.like(np.where(where, x.carrier, y.carrier))


def rounded_curve(device: Device, x: Array, function: Function) -> Array:
    """A function in binary32, rounded once into the format of x."""
    return device.cast(tabulated(device, x, function), x.format)


def sloped(device: Device, gradient: Array, x: Array, slope: Function) -> Array:
    """The gradient times a slope at x, in binary32, rounded once into the gradient's format."""
    single = device.cast(gradient, wide(gradient.format))
    return device.cast(device.multiply(single, tabulated(device, x, slope)), gradient.format)


def curve(name: str, function: Function, slope: Function, **verbs: int) -> Primitive:
    """The row of a function and its slope, both from binary32 to binary32.

    verbs    operations of each kind for an element, for the cost.
    """

    @in_one_call
    def forward(device: Device, x: Array) -> tuple[Array, Saved]:
        return rounded_curve(device, x, function), (x,)

    @in_one_call
    def vjp(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
        return sloped(device, gradient, saved[0], slope)

    return Primitive(
        name, forward, (vjp,), cost=steps(verbs, cast=2), rounding=INSIDE, gradient=INSIDE
    )
