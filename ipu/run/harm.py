"""Harm: how far the losses of a run are from those of another one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fpsim.state.processor import usual_arithmetic

__all__ = ["HARM", "harm_of", "is_of_chance", "most_left", "noise_of", "unit_of"]

#: Harm above this is told; a larger one than the other is that of no chance, in however few steps.
HARM, _LARGE = 0.05, 0.2
#: Quantile of Student's distribution: what noise is less than in 19 of 20 cases.
_QUANTILE = 0.95
#: Digits that hold losses, and those of their format: of bfloat16, of binary16, and of means of up
#: to eight numbers of binary16, as loops that accumulate gradients log them.
_DIGITS = (8, 8), (11, 11), (14, 11)
#: Losses that have a spread.
_SPREAD = 2


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
    size = _size(far)
    distance = float(np.mean(np.abs(np.asarray(losses[:n], np.float64) - far)))
    return distance / size if size else (math.inf if distance else 0.0)


def _size(losses: NDArray[np.float64]) -> float:
    """What losses go through: their fall, or their deviation; of one, which does not, itself."""
    if losses.size == 1:
        return abs(float(losses[0]))
    return max(abs(float(losses[0] - losses[-1])), float(np.std(losses)))


@usual_arithmetic
def noise_of(losses: Sequence[float], reference: Sequence[float]) -> float:
    """The harm that losses may show where they part from the reference's by chance.

    It is half of Student's interval of their mean difference, each step for itself. Of losses that
    lie above the reference's in one batch and below it in the next, as results that are rounded
    otherwise do, this is a good part of the harm; of those that stay behind more and more it is
    little. More steps have less. 0 of a single loss, which tells no spread.

    >>> round(noise_of([4.4, 2.6, 2.4, 0.6], [4.0, 3.0, 2.0, 1.0]), 2)
    0.18
    >>> noise_of([4.5, 3.5, 2.5, 1.5], [4.0, 3.0, 2.0, 1.0])
    0.0
    """
    n = min(len(losses), len(reference))
    if n < _SPREAD:
        return 0.0
    far = np.asarray(reference[:n], np.float64)
    apart = np.asarray(losses[:n], np.float64) - far
    error = float(np.std(apart, ddof=1)) / math.sqrt(n)
    size = _size(far)
    return float(stdtrit(n - 1, _QUANTILE)) * error / size if size else 0.0


def is_of_chance(harm: float, losses: Sequence[float], reference: Sequence[float]) -> bool:
    """Whether a harm of these losses is too large for none, and too small to be told from noise.

    >>> is_of_chance(0.13, [4.4, 2.6, 2.4, 0.6], [4.0, 3.0, 2.0, 1.0])
    True
    >>> is_of_chance(0.3, [4.9, 2.1, 2.9, 0.1], [4.0, 3.0, 2.0, 1.0])
    False
    """
    return HARM < harm <= _LARGE and harm <= HARM + noise_of(losses, reference)


def most_left(before: float) -> float:
    """Harm that a cure leaves at most: none that is told, and half of what was there.

    >>> most_left(0.5), most_left(0.06), most_left(0.01)
    (0.05, 0.03, 0.05)
    """
    return min(HARM, before / 2) if before > HARM else HARM


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
