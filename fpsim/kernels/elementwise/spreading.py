"""Numbers repeated along an axis: what broadcasts along the last axes, as it is read."""

from __future__ import annotations

from fpsim.kernels.compiling import compiled

__all__ = ["spread_numbers"]


@compiled
def spread_numbers(numbers, out):
    """out = each number as often as it fits, one after the other; both are flat."""
    times = out.shape[0] // numbers.shape[0]
    for i in range(numbers.shape[0]):
        row, number = out[i * times : (i + 1) * times], numbers[i]
        for k in range(times):
            row[k] = number
