"""Harm: how far the losses of a run are from those of another one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fpsim.state.processor import usual_arithmetic

__all__ = ["HARM", "harm_of", "loss_harm"]

#: Harm above this is told.
HARM = 0.05
#: Digits of the formats that losses may be held in, the coarsest first: bfloat16, binary16.
_DIGITS = 8, 11


@usual_arithmetic
def harm_of(losses: Sequence[float], reference: Sequence[float]) -> float:
    """The mean distance from the reference's losses, beside their fall or deviation.

    One loss is compared beside itself.

    >>> harm_of([4.0, 4.0], [4.0, 3.0]), harm_of([4.0, float("nan")], [4.0, 3.0])
    (0.5, inf)
    """
    n = min(len(losses), len(reference))
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


def loss_harm(losses: Sequence[float], reference: Sequence[float]) -> float:
    """The harm that losses show: distances of at most a unit of the format that holds them are none.

    >>> loss_harm([4.0, 4.0], [4.0, 3.0]), loss_harm([1.3857421875, 1.384765625], [1.3854, 1.3851])
    (0.5, 0.0)
    """
    n = min(len(losses), len(reference))
    ours = np.asarray(losses, np.float64)
    far = np.asarray(reference, np.float64)
    if not np.isfinite(ours).all():
        return math.inf
    is_near = np.abs(ours[:n] - far[:n]) <= _units(ours)[:n]
    return harm_of([*np.where(is_near, far[:n], ours[:n]), *ours[n:]], reference)


def _units(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each loss a unit of the coarsest format that holds them all; zeros where none does.

    >>> _units(np.array([1.5, 1000.0])).tolist(), _units(np.array([0.1])).tolist()
    ([0.0078125, 4.0], [0.0])
    """
    parts, exponents = np.frexp(losses)
    for digits in _DIGITS:
        scaled = np.ldexp(parts, digits)
        if (scaled == np.rint(scaled)).all():
            return np.ldexp(np.ones_like(losses), exponents - digits)
    return np.zeros_like(losses)
