"""Harm: how far the losses of a run are from those of another one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fpsim.state.processor import usual_arithmetic

__all__ = ["HARM", "harm_of"]

#: Harm above this is told.
HARM = 0.05


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
