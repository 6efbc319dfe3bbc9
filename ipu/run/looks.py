"""Looks at paired differences: after 5, 8 and 12 pairs, with bounds that hold over all of them.

The interval of a mean reaches `critical · sd / √n` to each side. Student's quantiles would hold for
normal noise alone: differences of losses are skewed, and with five of them a one-sided test of 5 %
is wrong in 13 %. So the factors are wider. They were found by simulation (MEASURED:
tests/ipu/run/simulated.py): over all looks, a mean that lies at the margin is taken for one below
it in less than 5 % of comparisons, whether the noise is uniform, normal, has heavy tails, or is
skewed as far as the exponential distribution, which is the worst of them (skewness 2).

Source    Pocock (1977), Group sequential methods in the design and analysis of clinical trials,
          for several looks at one level; Schuirmann (1987) for margins; Holm (1979).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from fpsim.state.processor import usual_arithmetic

__all__ = ["ALPHA", "LOOKS", "MOST_CONFIRMED", "MOST_SHARING", "bound", "check_pairs", "critical",
           "looks_of", "pairs_needed"]

#: Share of comparisons at the margin that may be called below it, over all looks.
ALPHA = 0.05
#: Pairs after which one looks.
LOOKS = (5, 8, 12)
#: Half widths in standard errors at the looks: where ALPHA is one comparison's, or shared by more.
_CRITICAL = {
    1: (7.0, 5.0, 4.0), 2: (10.0, 6.0, 5.0), 3: (12.5, 7.5, 5.7), 4: (13.0, 8.3, 6.3),
    6: (15.0, 9.2, 7.0), 8: (16.5, 10.0, 7.5), 12: (19.0, 11.3, 8.3), 16: (21.0, 12.2, 8.9),
}
#: Comparisons that may share ALPHA, and ways of trials that do.
MOST_SHARING, MOST_CONFIRMED = max(_CRITICAL), 3
#: Share of comparisons without a difference that the number of pairs is to settle.
_POWER = 0.8
#: Beyond so many pairs the number is not told.
_MANY = 10_000


def check_pairs(pairs: object, *, least: int = LOOKS[0]) -> int:
    """The number of pairs.

    Raises    TypeError, ValueError.

    >>> check_pairs(3)
    Traceback (most recent call last):
    ...
    ValueError: pairs=3 is too few for an answer; use 5 or more
    """
    if isinstance(pairs, bool) or not isinstance(pairs, int):
        raise TypeError(f"pairs={pairs!r} is no number of runs; use 12, or another of {least} up")
    if pairs < least:
        raise ValueError(f"pairs={pairs} is too few for an answer; use {least} or more")
    return pairs


def looks_of(pairs: int) -> tuple[int, ...]:
    """After how many pairs one looks when so many may run; of more than 12 once, at the end.

    >>> looks_of(12), looks_of(9), looks_of(30), looks_of(1)
    ((5, 8, 12), (5, 8), (30,), ())
    """
    return (pairs,) if pairs > LOOKS[-1] else tuple(n for n in LOOKS if n <= pairs)


def critical(n: int, sharing: int = 1) -> float:
    """Half width of the interval of n pairs, in standard errors of the mean; infinite below 5.

    sharing    comparisons that share ALPHA, as Holm's procedure has it; at most `MOST_SHARING`.

    >>> critical(12), critical(12, 5), critical(12, 6), critical(4)
    (4.0, 7.0, 7.0, inf)
    """
    factors = next(f for most, f in _CRITICAL.items() if sharing <= most)
    return next((c for least, c in zip(LOOKS[::-1], factors[::-1], strict=True) if n >= least),
                math.inf)


@usual_arithmetic
def bound(values: Sequence[float], sharing: int = 1) -> float:
    """Half width of the interval of the mean of paired values; infinite for fewer than five."""
    n = len(values)
    if n < LOOKS[0]:
        return math.inf
    return critical(n, sharing) * float(np.std(values, ddof=1)) / math.sqrt(n)


def pairs_needed(deviation: float, distance: float, pairs: int = 0) -> int | None:
    """Pairs that settle a mean so far from the margin in four of five cases; None: too many.

    pairs    that have not settled it: more of them are needed, at the next look at least.

    >>> pairs_needed(1.0, 1.0), pairs_needed(0.0, 1.0), pairs_needed(1.0, 1e-6)
    (24, 5, None)
    >>> pairs_needed(0.1, 1.0, pairs=5)
    8
    """
    least = next((look for look in LOOKS if look > pairs), pairs + 1)
    if not deviation:
        return least
    errors = (critical(LOOKS[-1]) + float(ndtri(_POWER))) * deviation
    if not errors < math.sqrt(_MANY) * distance:
        return None
    return max(least, math.ceil((errors / distance) ** 2))
