"""Yes, no, or undecided: an answer is only as firm as its effect is larger than its uncertainty.

One rule for every experiment and for quick runs alike. A claim is of the form "the effect is above
a threshold". It is true where the whole interval of the effect lies above, false where the whole
interval lies below, and undecided by the run in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

#: How an answer begins that the run does not give.
UNDECIDED = "Undecided by this run"
#: Share of intervals that hold the true effect.
CONFIDENCE = 0.95
#: What ± means, which each page says.
SPREAD = (
    f"± is the half width of the {CONFIDENCE:.0%} interval of a mean, by Student's t; a standard "
    "deviation is called one."
)


@dataclass(frozen=True)
class Effect:
    """A measured effect and the half width of its interval; 0 for what is exact."""

    value: float
    uncertainty: float = 0.0

    def is_above(self, threshold: float) -> bool:
        """The whole interval lies above.

        >>> Effect(3.0, 2.0).is_above(0.5), Effect(3.0, 2.0).is_above(1.0)
        (True, False)
        """
        return self.value - self.uncertainty > threshold

    def is_below(self, threshold: float) -> bool:
        """The whole interval lies below."""
        return self.value + self.uncertainty < threshold


def over_seeds(values: Iterable[float], least: float = 0.0) -> Effect:
    """The mean of paired values, one for each seed, with Student's interval.

    One seed shows no spread, so its uncertainty is infinite. `least` is a standard error of the
    mean that is known beforehand, as of a share of few test images: the spread of two or three
    seeds may be smaller by chance.

    >>> round(over_seeds([1.0, 2.0, 3.0]).uncertainty, 3)
    2.484
    >>> over_seeds([1.0])
    Effect(value=1.0, uncertainty=inf)
    """
    differences = np.asarray(list(values), np.float64)
    if differences.size < 2:
        return Effect(float(differences.mean()), math.inf)
    quantile = (1 + CONFIDENCE) / 2
    n = differences.size
    spread = stdtrit(n - 1, quantile) * differences.std(ddof=1) / math.sqrt(n)
    return Effect(float(differences.mean()), max(float(spread), float(ndtri(quantile)) * least))


def verdict(is_true: bool, is_false: bool, *, needs: str) -> str:
    """How the answer to a yes-or-no question begins.

    needs    what would decide an undecided question.

    >>> verdict(False, False, needs="more seeds")
    'Undecided by this run; more seeds would decide it.'
    """
    if is_true:
        return "Yes."
    if is_false:
        return "No."
    return f"{UNDECIDED}; {needs} would decide it."
