"""How a harm answers to the sites that it needs: in which steps, in pairs, and by how many bits.

    window    the fewest steps without a gap in which the necessary sites must be given back.
    pair      two necessary sites: the harm with neither of them, one, the other, and both given
              back, all other necessary sites in binary32. They interact where both together take
              away more than one and the other do by themselves.
    dose      results of the necessary sites rounded to a format between theirs and binary32, which
              has 1, 2, 4 or 8 more digits, or 1, 2 or 3 more bits of exponent; where their operands
              are cast to a narrower format and flushed by that, between this one and binary32.

Evidence    ASSUMED: harms above 10 are told, and compared, as 10.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from fpsim.records.formats import BINARY32, Format
from ipu.run.harm import HARM
from ipu.run.restoring import PrecisionSite

__all__ = ["Dose", "SitePair", "doses_above", "harm_text", "last_that_holds", "pair_responses",
           "smallest_window"]

_LARGEST = 10.0
#: Harms beyond it have no more digits.
_TOLD = 100.0
#: Of pairs that are told, the least part of the harm that they take away together alone.
_JOINT = 0.05
_DIGITS, _EXPONENT_BITS = (1, 2, 4, 8), (1, 2, 3)


@dataclass(frozen=True)
class SitePair:
    """Two sites; harms with neither of them given back, the first, the second, and both."""

    first: PrecisionSite
    second: PrecisionSite
    harms: tuple[float, float, float, float]

    @property
    def joint(self) -> float:
        """What both take away beyond the sum of what each does by itself.

        >>> one, other = PrecisionSite("a", "forward"), PrecisionSite("b", "forward")
        >>> SitePair(one, other, (0.5, 0.5, 0.5, 0.0)).joint
        0.5
        """
        neither, one, other, both = (min(harm, _LARGEST) for harm in self.harms)
        return (neither - both) - (neither - one) - (neither - other)

    @property
    def interacts(self) -> bool:
        """Whether that is a part of the harm that counts."""
        return self.joint > _JOINT * min(self.harms[0], _LARGEST)


@dataclass(frozen=True)
class Dose:
    """The harm with the results of the necessary sites in a format."""

    format: Format
    harm: float
    cures: bool

    def __str__(self) -> str:
        fmt, verdict = self.format, "cures" if self.cures else "does not cure"
        is_symptom = self.harm <= HARM and not self.cures
        left = "a symptom stays" if is_symptom else f"harm {harm_text(self.harm)}"
        return f"{fmt.exponent_bits} bits of exponent, {fmt.precision} digits: {verdict}, {left}"


def harm_text(harm: float) -> str:
    """A harm as it is told.

    >>> harm_text(0.051), harm_text(2e5), harm_text(math.inf)
    ('5.1%', 'more than 10,000%', 'infinite')
    """
    if not math.isfinite(harm):
        return "infinite"
    return f"{harm:.1%}" if harm <= _TOLD else f"more than {_TOLD:,.0%}"


def doses_above(low: Format) -> Iterator[Format]:
    """Formats with more digits than a format, then those with more bits of exponent.

    >>> from fpsim import BFLOAT16
    >>> [(f.exponent_bits, f.precision) for f in doses_above(BFLOAT16)]
    [(8, 9), (8, 10), (8, 12), (8, 16)]
    """
    for digits in _DIGITS:
        if low.precision + digits < BINARY32.precision:
            yield Format.custom(low.exponent_bits, low.precision + digits)
    for bits in _EXPONENT_BITS:
        if low.exponent_bits + bits <= BINARY32.exponent_bits:
            yield Format.custom(low.exponent_bits + bits, low.precision)


def smallest_window(
    steps: int, cures: Callable[[tuple[int, int]], bool]
) -> tuple[int, int] | None:
    """The fewest steps without a gap that cure, as the first and the one behind the last.

    steps    all of which cure; the later the window begins, the fewer does it cure.

    >>> smallest_window(10, lambda window: window[0] <= 3 and window[1] >= 5)
    (3, 5)
    """
    begin, end = last_that_holds(lambda n: cures((n, steps)), steps), steps
    end = steps - last_that_holds(lambda n: cures((begin, steps - n)), steps - begin)
    return (begin, end) if end - begin < steps else None


def last_that_holds(holds: Callable[[int], bool], bound: int) -> int:
    """The largest number below a bound for which it holds; it does for 0."""
    low, high = 0, bound
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def pair_responses(
    sites: Sequence[PrecisionSite], harm: Callable[[frozenset[PrecisionSite]], float],
    go_on: Callable[[], bool] = lambda: True,
) -> Iterator[SitePair]:
    """The pairs of some sites, as long as there is time.

    harm    with these sites given back.
    """
    for one, other in combinations(sites, 2):
        if not go_on():
            return
        rest = frozenset(sites) - {one, other}
        restored = (rest, rest | {one}, rest | {other}, rest | {one, other})
        neither, first, second, both = map(harm, restored)
        yield SitePair(one, other, (neither, first, second, both))
