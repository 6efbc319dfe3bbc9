"""What a matrix unit does, found from outside by products that only differ where it matters.

Nothing of the record is read but its formats, so the same probes could be run on a part. Each is a
row times a column with powers of two, whose exact result is known.

Source    Fasi, Higham, Mikaitis & Pranesh 2021 (subnormals, exact products, rounding, carry digits,
          monotonicity); FPRev, USENIX ATC 2025 (M and -M find the order of a sum).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fpsim.context import Context
from fpsim.linalg import matmul
from fpsim.units import MatrixUnit, find_unit

__all__ = ["Fingerprint", "Probe", "fingerprint"]

#: Distances tried for the window; what survives them all is not cut.
_FARTHEST = 60


class Probe:
    """A unit as a black box: row times column plus c."""

    def __init__(self, unit: str | MatrixUnit) -> None:
        self.unit = find_unit(unit)
        self.inputs, self.partials = self.unit.inputs[0], self.unit.partials

    def __call__(self, a: Sequence[float], b: Sequence[float], c: float = 0.0) -> float:
        x = Context(self.inputs).wrap(np.array([a], self.inputs.carrier))
        y = Context(self.inputs).wrap(np.array([[v] for v in b], self.inputs.carrier))
        context = Context(self.partials)
        start = context.wrap(np.array([[c]], self.partials.carrier))
        result = matmul(x, y, self.unit, context=context, accumulator=start)
        return float(result.values[0, 0])

    def sum(self, exponents: Sequence[tuple[int, int] | None], c: float = 0.0) -> float:
        """The sum of ± 2**e for (sign, e); None is a zero."""
        pairs = [(0.0, 0.0) if t is None else self._factors(*t) for t in exponents]
        return self([p[0] for p in pairs], [p[1] for p in pairs], c)

    def _factors(self, sign: int, e: int) -> tuple[float, float]:
        """Two values of the input format whose product is sign * 2**e, normal ones if possible."""
        fmt = self.inputs
        first = min(max(e // 2, fmt.emin), fmt.emax)
        smallest = fmt.emin - fmt.precision + 1
        if e - first < fmt.emin:
            first = min(max(e - smallest, smallest), first)
        if not smallest <= e - first <= fmt.emax:
            raise ValueError(f"2**{e} is no product of two values of {fmt}")
        return sign * 2.0**first, 2.0 ** (e - first)


@dataclass(frozen=True)
class Fingerprint:
    """What the probes found.

    terms        neighbouring products that are summed before anything is rounded.
    window       fraction digits kept below the largest exponent; None: all that the probes reach.
    cut          truncate, sticky or nearest: what becomes of the digits below; None: all stay.
    rounding     of the sum: RNE or RTZ.
    digits       of the sum.
    exact        products are exact.
    subnormals   subnormal inputs count.
    monotone     a larger accumulator never gives a smaller result, as far as the probe sees.
    """

    terms: int
    window: int | None
    cut: str | None
    rounding: str
    digits: int
    exact: bool
    subnormals: bool
    monotone: bool


def fingerprint(unit: str | MatrixUnit) -> Fingerprint:
    """All probes of one unit.

    >>> fingerprint("V100_F16_F32")
    Fingerprint(terms=4, window=23, cut='truncate', rounding='RTZ', digits=24, exact=True,
    subnormals=True, monotone=False)
    """
    probe = Probe(unit)
    digits = _digits(probe)
    window = _window(probe)
    cut = None if window is None else _cut(probe, window)
    return Fingerprint(
        terms=_terms(probe) if cut != "sticky" else _terms_by_ties(probe),
        window=window,
        cut=cut,
        rounding=_rounding(probe, digits),
        digits=digits,
        exact=_exact(probe),
        subnormals=_subnormals(probe),
        monotone=_monotone(probe, digits),
    )


def _terms(probe: Probe) -> int:
    """FPRev: what is added together with M, or before -M has cancelled it, is not in the result.

    M stands first and -M at position j; small ones everywhere else. With -M in the first call, the
    ones of that call alone are lost.
    """
    n = 4 * probe.unit.channels
    smallest = probe.inputs.emin - probe.inputs.precision + 1
    big = min(2 * probe.inputs.emax, probe.partials.emax - 1)
    small = max(2 * probe.inputs.emin, big - _FARTHEST, smallest + probe.inputs.emin)
    if probe.partials.precision < 24:
        small = max(small, probe.partials.emin - probe.partials.precision + 1)
    if n == 1:
        return 1
    lost = []
    for j in range(1, n):
        row: list[tuple[int, int] | None] = [(1, small)] * n
        row[0], row[j] = (1, big), (-1, big)
        counted = probe.sum(row) / 2.0**small
        lost.append(n - 2 - counted)
    # The first -M after which more is lost than before it begins the second call.
    first = next((j for j, more in enumerate(lost, 1) if more > lost[0]), n)
    return 1 if first == 2 and not _pairs_share_a_call(probe) else first


def _pairs_share_a_call(probe: Probe) -> bool:
    """1 in the first pair and half a unit of binary32 twice in the second: two ties, or a unit."""
    top = _top(probe)
    half = (1, top - 24)
    return probe.sum([(1, top), None, half, half, (-1, top)]) != 0.0


def _share_a_call(probe: Probe, j: int) -> bool:
    """Two halves of a unit beside 1: each alone is a tie or is cut, together they count."""
    half = -probe.partials.precision
    row: list[tuple[int, int] | None] = [None] * (4 * probe.unit.channels)
    row[0] = row[j] = (1, half)
    return probe.sum(row, 1.0) != 1.0


def _terms_by_ties(probe: Probe) -> int:
    """Where the window jams, M hides nothing; ties of an accumulator to nearest tell instead."""
    n = 4 * probe.unit.channels
    return next((j for j in range(1, n) if not _share_a_call(probe, j)), n)


def _window(probe: Probe) -> int | None:
    """The farthest 2**-d that survives beside 1 - 1, all of them times a power of two."""
    top, kept = _top(probe), 0
    for d in range(1, _FARTHEST):
        try:
            left = probe.sum([(1, top), (1, top - d), (-1, top)])
        except ValueError:
            return None  # beyond what the inputs can say
        if left != 2.0 ** (top - d):
            return None if left == 0 and top - d < _last(probe) else kept
        kept = d
    return None


def _top(probe: Probe) -> int:
    return min(2 * probe.inputs.emax, probe.partials.emax - 1, 14)


def _last(probe: Probe) -> int:
    """Exponent of the smallest number of the result."""
    return probe.partials.emin - probe.partials.precision + 1


def _cut(probe: Probe, window: int) -> str:
    """What a quarter of a unit, or three of them, below the window become."""
    top = _top(probe)
    quarter, half = (1, top - window - 2), (1, top - window - 1)
    if probe.sum([(1, top), quarter, (-1, top)]):
        return "sticky"
    return "nearest" if probe.sum([(1, top), half, quarter, (-1, top)]) else "truncate"


def _digits(probe: Probe) -> int:
    """One more than the farthest 2**-d that stays beside a whole number."""
    for d in range(1, _FARTHEST):
        try:
            if probe.sum([(1, 0), (1, -d)]) != 1 + 2.0**-d:
                return d
        except ValueError:
            return d
    return _FARTHEST


def _rounding(probe: Probe, digits: int) -> str:
    """4 and three quarters of a unit: three ones, and an accumulator whose digits they push out."""
    unit = 2.0 ** (1 - digits)
    got = probe.sum([(1, 0)] * 3, 1 + 3 * unit)
    return "RNE" if got == 4 + 4 * unit else "RTZ"


def _exact(probe: Probe) -> bool:
    """(1 - 2**-p)**2 is 1 - 2**(1 - p) + 2**(-2 p), to the last digit."""
    p = probe.inputs.precision
    x = 1 - 2.0**-p
    return probe([x], [x], -(1 - 2.0 ** (1 - p))) == 2.0 ** (-2 * p)


def _subnormals(probe: Probe) -> bool:
    smallest = probe.inputs.smallest_subnormal
    return probe([smallest], [4.0]) == 4 * smallest


def _monotone(probe: Probe, digits: int) -> bool:
    """Four parts that are lost beside 1, but not beside the number before it."""
    row: list[tuple[int, int] | None] = [(1, -digits)] * 4
    try:
        return probe.sum(row, 1 - 2.0**-digits) <= probe.sum(row, 1.0)
    except ValueError:
        return True  # the inputs cannot ask
