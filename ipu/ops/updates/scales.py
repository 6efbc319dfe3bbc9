"""Gradients of a loss that was multiplied by a scale.

Source    docs/semantics.md §9 (loss scales of front ends).
"""

from __future__ import annotations

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu.machine.device import Device

__all__ = ["unscaled"]


def unscaled(device: Device, gradient: Array, inverse: float) -> Array:
    """gradient · inverse in binary32.

    >>> from fpsim import BINARY16
    >>> device = Device()
    >>> print(unscaled(device, device.from_host([8.0], BINARY16), 0.25))
    Array([2.], binary32)
    """
    factor = device.context(BINARY32).constant(inverse)
    return device.multiply(device.cast(gradient, BINARY32), factor)
