"""The search for the highest loss scale that a step survives.

Source    Graphcore's TensorFlow 1 tutorial on half precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fpsim.records.flags import Flags, FloatingPointTrap

__all__ = ["find_loss_scale"]


def find_loss_scale(
    step: Callable[[float], object], exponents: Sequence[int] = range(25)
) -> float | None:
    """The highest power of two that a step survives with the overflow trap armed.

    `step(scale)` runs on a device whose traps are armed; the scale is raised until it stops with
    an overflow. None if the first scale does already; the last of `exponents` where nothing stops
    it, as with traps that are not armed.

    Raises    FloatingPointTrap of any other exception.
    """
    best = None
    for exponent in exponents:
        try:
            step(2.0**exponent)
        except FloatingPointTrap as trap:
            if trap.flags & Flags.OVERFLOW:
                return best
            raise
        best = 2.0**exponent
    return best
