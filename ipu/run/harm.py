"""Harm: how far the losses of a run are from those of another one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fpsim.state.processor import usual_arithmetic

__all__ = ["HARM", "harm_of", "unit_of"]

#: Harm above this is told.
HARM = 0.05
#: Digits that hold losses, and those of their format: of bfloat16, of binary16, and of means of up
#: to eight numbers of binary16, as loops that accumulate gradients log them.
_DIGITS = (8, 8), (11, 11), (14, 11)


@usual_arithmetic
def harm_of(
    losses: Sequence[float], reference: Sequence[float], negligible: float = 0.0
) -> float:
    """The mean distance from the reference's losses, beside their fall or deviation.

    One loss is compared beside itself.

    negligible    there is no harm where all distances are at most this.

    >>> harm_of([4.0, 4.0], [4.0, 3.0]), harm_of([4.0, float("nan")], [4.0, 3.0])
    (0.5, inf)
    >>> harm_of([1.5], [1.0], 0.1), harm_of([1.05], [1.0], 0.1)
    (0.5, 0.0)
    """
    n = min(len(losses), len(reference))
    pairs = zip(losses, reference, strict=False)
    if len(losses) == len(reference) and all(abs(x - y) <= negligible for x, y in pairs):
        return 0.0
    if len(losses) < len(reference) or not np.isfinite(losses).all():
        return math.inf
    if not n:
        return 0.0
    far = np.asarray(reference[:n], np.float64)
    size = max(abs(float(far[0] - far[-1])), float(np.std(far)))
    if n == 1:  # which goes through nothing
        size = abs(float(far[0]))
    distance = float(np.mean(np.abs(np.asarray(losses[:n], np.float64) - far)))
    return distance / size if size else (math.inf if distance else 0.0)


@usual_arithmetic
def unit_of(losses: Sequence[float]) -> float:
    """A unit of the coarsest format that holds all losses, at the largest; 0 where none does.

    >>> unit_of([1.5, 1000.0]), unit_of([0.1]), unit_of([1.0, float("inf")])
    (4.0, 0.0, 0.0)
    """
    if not losses or not np.isfinite(losses).all():
        return 0.0
    parts, exponents = np.frexp(np.asarray(losses, np.float64))
    for held, digits in _DIGITS:
        scaled = np.ldexp(parts, held)
        if (scaled == np.rint(scaled)).all():
            return math.ldexp(1.0, int(exponents.max()) - digits)
    return 0.0
