"""What a matrix unit does, measured from outside by products that only differ where it matters.

Nothing of the record is read but its formats, so the same probes could be run on a part. Each is a
row times a column with powers of two, whose exact result is known. First M and -M find which terms
are summed in one call; then digits far below a number tell, by where the number is taken back, what
is kept inside a call, between calls, and where partial results are stored.

Source    Fasi, Higham, Mikaitis & Pranesh 2021 (subnormals, exact products, rounding, carry digits,
          monotonicity); FPRev, USENIX ATC 2025 (M and -M find the order of a sum).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fpsim.context import Context
from fpsim.linalg import matmul
from fpsim.records.units import MatrixUnit, find_unit
from fpsim.state.processor import usual_arithmetic

__all__ = ["Fingerprint", "Probe", "fingerprint"]

#: Distances tried for the window; what survives them all is not cut.
_FARTHEST = 60

#: Products of a probe: three calls and more of every unit known.
_TERMS = 128

#: A sign and an exponent, by position in the row.
Terms = dict[int, tuple[int, int]]


class Probe:
    """A unit as a black box: row times column plus c.

    >>> probe = Probe("V100_F16_F32")
    >>> [probe.sum({0: (1, 0), 1: (1, e)}) - 1 for e in (-23, -24)]
    [1.1920928955078125e-07, 0.0]
    """

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

    def sum(self, terms: Terms, c: float = 0.0) -> float:
        """The sum of ± 2**e for position: (sign, e); c comes in with the partial result."""
        pairs = [(0.0, 0.0)] * (max(terms) + 1)
        for position, term in terms.items():
            pairs[position] = self._factors(*term)
        return self([p[0] for p in pairs], [p[1] for p in pairs], c)

    @property
    def top(self) -> int:
        """An exponent that products and partials both reach."""
        return min(2 * self.inputs.emax, self.partials.emax - 1, 14)

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
    """The answers of the probes.

    terms        products that are summed before anything is rounded.
    order        ascending: those of a call are neighbours; pairs: every other pair of them.
    window       fraction digits kept below the largest exponent; None: all that the probes reach.
    cut          truncate, sticky or nearest: what becomes of the digits below; None: all stay.
    digits       kept of the sum from one call to the next.
    rounding     of that sum: RNE or RTZ.
    stored       digits of a partial result.
    channels     products between two stores; None where they lose nothing, or there is one.
    joined       the partial result is added after the calls of a pass, not in the first.
    exact        products are exact.
    subnormals   subnormal inputs count.
    monotone     a larger accumulator never gives a smaller result, as far as the probe sees.

    >>> answers = fingerprint("V100_F16_F32")
    >>> isinstance(answers, Fingerprint), answers.terms, answers.window, answers.rounding
    (True, 4, 23, 'RTZ')
    """

    terms: int
    order: str
    window: int | None
    cut: str | None
    digits: int
    rounding: str
    stored: int
    channels: int | None
    joined: bool
    exact: bool
    subnormals: bool
    monotone: bool


@usual_arithmetic
def fingerprint(unit: str | MatrixUnit) -> Fingerprint:
    """All probes of one unit.

    >>> fingerprint("V100_F16_F32")
    Fingerprint(terms=4, order='ascending', window=23, cut='truncate', digits=24, rounding='RTZ',
    stored=24, channels=None, joined=False, exact=True, subnormals=True, monotone=False)
    """
    probe = Probe(unit)
    calls = _calls(probe)
    first, terms = calls[0], len(calls[0])
    window = _window(probe, first)
    digits, stored = _digits(probe, calls), _stored(probe)
    return Fingerprint(
        terms=terms,
        order="ascending" if first == list(range(terms)) else "pairs",
        window=window,
        cut=None if window is None else _cut(probe, first, window),
        digits=digits,
        rounding=_rounding(probe, calls, digits),
        stored=stored,
        channels=_channels(probe, first, digits) if stored < digits else None,
        joined=_joined(probe, calls, digits),
        exact=_exact(probe),
        subnormals=_subnormals(probe),
        monotone=_monotone(probe, first, stored),
    )


# Which terms are summed together -----------------------------------------------------------------


def _calls(probe: Probe) -> list[list[int]]:
    """Positions of the first three calls, of six where a call takes one term."""
    calls: list[list[int]] = []
    left = list(range(_TERMS))
    while len(calls) < (3 if calls and len(calls[0]) > 1 else 6):
        call = _call_of(probe, left[0], left[1:])
        if len(call) == 2 and not _neighbours_share_a_call(probe, left[0]):
            call = call[:1]
        calls.append(call)
        left = [position for position in left if position not in call]
    return calls


def _call_of(probe: Probe, i: int, others: list[int]) -> list[int]:
    """FPRev: what is added together with M, or before -M has cancelled it, is not in the result.

    Small ones stand after M, but not at -M. With -M in the call of M the fewest are lost: those
    of that call, or none where it is exact. Where digits below jam into the last, small ones beside
    M grow instead; with -M in the call of M they are one fewer.
    """
    smallest = probe.inputs.emin - probe.inputs.precision + 1
    big = min(2 * probe.inputs.emax, probe.partials.emax - 1)
    small = max(2 * probe.inputs.emin, big - _FARTHEST, smallest + probe.inputs.emin)
    if probe.partials.precision < 24:
        small = max(small, probe.partials.emin - probe.partials.precision + 1)
    left = []
    for j in others:
        row = dict.fromkeys(range(i, _TERMS), (1, small))
        left.append(probe.sum(row | {i: (1, big), j: (-1, big)}))
    grown = max(left) > _TERMS * 2.0**small
    same = min(left) if grown else max(left)
    return [i] + [j for j, value in zip(others, left, strict=True) if value == same]


def _neighbours_share_a_call(probe: Probe, i: int) -> bool:
    """Half a unit of binary32 twice beside 2**top: two ties that are lost, or a whole unit."""
    half = (1, probe.top - 24)
    row = {i: (1, probe.top), i + 2: half, i + 3: half, i + 4: (-1, probe.top)}
    return probe.sum(row) != 0.0


# What is kept ------------------------------------------------------------------------------------


def _farthest(probe: Probe, number: int, small: int, taken_back: int) -> int | None:
    """The largest d for which 2**-d survives beside 1 - 1, for the positions of the three.

    All of them times a power of two; None where it survives as far as the inputs can say.
    """
    digits, top = 0, probe.top
    last = probe.partials.emin - probe.partials.precision + 1
    for d in range(1, _FARTHEST):
        row = {number: (1, top), small: (1, top - d), taken_back: (-1, top)}
        try:
            left = probe.sum(row)
        except ValueError:
            return None
        if left != 2.0 ** (top - d):
            return None if left == 0 and top - d < last else digits
        digits = d
    return None


def _window(probe: Probe, call: list[int]) -> int | None:
    """Taken back in the same call; a call of one term or two has no place for the three."""
    return _farthest(probe, *call[:3]) if len(call) >= 3 else None


def _digits(probe: Probe, calls: list[list[int]]) -> int:
    """Taken back one call later."""
    first, second, third = calls[:3]
    positions = (*first[:2], second[0]) if len(first) > 1 else (first[0], second[0], third[0])
    digits = _farthest(probe, *positions)
    return _FARTHEST if digits is None else digits + 1


def _channels(probe: Probe, call: list[int], digits: int) -> int | None:
    """The first position where it is too late to take the number back: digits have been lost."""
    number, small = call[0], call[1] if len(call) > 1 else call[0] + 1
    term = (1, probe.top - digits + 1)
    for j in range(small + 1, _TERMS):
        row = {number: (1, probe.top), small: term, j: (-1, probe.top)}
        if j not in call and probe.sum(row) == 0.0:
            return j
    return None


def _stored(probe: Probe) -> int:
    """One more than the farthest 2**-d that stays beside 1 in a result, times a power of two."""
    top = probe.top
    for d in range(1, _FARTHEST):
        try:
            if probe.sum({0: (1, top), 1: (1, top - d)}) != 2.0**top + 2.0 ** (top - d):
                return d
        except ValueError:
            return d
    return _FARTHEST


# How it is rounded -------------------------------------------------------------------------------


def _cut(probe: Probe, call: list[int], window: int) -> str:
    """What a quarter of a unit, or three of them, below the window become."""
    top = probe.top
    quarter, half = (1, top - window - 2), (1, top - window - 1)
    a, b, c, d = call[:4]
    if probe.sum({a: (1, top), b: quarter, d: (-1, top)}):
        return "sticky"
    ends = {a: (1, top), d: (-1, top)}
    return "nearest" if probe.sum(ends | {b: half, c: quarter}) else "truncate"


def _rounding(probe: Probe, calls: list[list[int]], digits: int) -> str:
    """1 and three units, then three ones: 4 and three quarters of a unit; then 4 is taken back."""
    one = probe.top - 3
    unit = one - digits + 1
    if len(calls[0]) == 1:
        a, b, c, d, e, f = (call[0] for call in calls)
        last = f + 1
    else:
        (a, b, c), (d, e, f), last = calls[0][:3], calls[1][:3], calls[2][0]
    row = {a: (1, one), b: (1, unit + 1), c: (1, unit), last: (-1, one + 2)}
    left = probe.sum(row | dict.fromkeys((d, e, f), (1, one)))
    return "RNE" if left == 2.0 ** (unit + 2) else "RTZ"


def _joined(probe: Probe, calls: list[list[int]], digits: int) -> bool:
    """Two halves of a unit in two calls are lost beside c, and a unit where c is not yet there."""
    top = probe.top
    half = (1, top - digits)
    first, second, third = calls[:3]
    last = second[1] if len(second) > 1 else third[0]
    left = probe.sum({first[0]: half, second[0]: half, last: (-1, top)}, 2.0**top)
    return left == 2.0 ** (top - digits + 1)


def _exact(probe: Probe) -> bool:
    """(1 - 2**-p)**2 is 1 - 2**(1 - p) + 2**(-2 p), to the last digit."""
    p = probe.inputs.precision
    x = 1 - 2.0**-p
    return probe([x], [x], -(1 - 2.0 ** (1 - p))) == 2.0 ** (-2 * p)


def _subnormals(probe: Probe) -> bool:
    smallest = probe.inputs.smallest_subnormal
    return probe([smallest], [4.0]) == 4 * smallest


def _monotone(probe: Probe, call: list[int], stored: int) -> bool:
    """Parts of a call that are lost beside 1, but not beside the number before it."""
    row = dict.fromkeys(call[:4], (1, -stored))
    try:
        return probe.sum(row, 1 - 2.0**-stored) <= probe.sum(row, 1.0)
    except ValueError:
        return True  # the inputs cannot ask
