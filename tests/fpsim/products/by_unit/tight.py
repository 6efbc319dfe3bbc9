"""Operands of matrix units where one digit decides, and the judgement of exact fractions.

A case puts the sum of a call on a midpoint of a format or on a number, then a tiny number beside
it: as accumulator or as one more product, of either sign, at the last digit of the window, one
below it, or far away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

import fpsim as fp
from fpsim.elementwise.codes import to_codes
from fpsim.judge.oracle.rounding import canonical_nan, encode, infinity
from fpsim.judge.oracle.units import Ask, one_output
from fpsim.products.by_unit.dispatch import finish
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job
from fpsim.records.formats import Format
from fpsim.records.settings import Settings
from fpsim.records.units import MatrixUnit
from fpsim.state.draws import NO_PLACES

#: Products whose sum is a midpoint or a number: both factors, and an exponent.
Terms = list[tuple[int, int, int]]


class Case(NamedTuple):
    """Factors of the terms, and the accumulator."""

    x: list[float]
    y: list[float]
    c: float


@cache
def factors(first: int, p: int, q: int) -> tuple[int, int] | None:
    """Odd factors of p and q digits of the first number that has some: first, first + 4, …

    >>> factors(257, 8, 8)
    (87, 3)
    """
    for m in range(first, min(2 * first, first + 4000), 4):
        for u in range(3, 1 << min(p, 12), 2):
            if m % u == 0 and m // u < 1 << q:
                return max(u, m // u), min(u, m // u)
    return None


def decisions(fmt: Format, a: Format, b: Format) -> Iterator[Terms]:
    """Sums on a midpoint of the format, above even and odd numbers, and on a number.

    They lie near 1, near the largest product (units of short formats reach their last digits only
    there), and at both ends of the format: half the least subnormal, three of it, and half a unit
    above the largest number.
    """
    n = fmt.precision
    for base in (0, min(60, a.emax + b.emax - 3)):
        for first in (2**n + 1, 2**n + 3):
            pair = factors(first, a.precision, b.precision)
            if pair is not None:
                yield [(*pair, base - n)]
            yield [(1, 1, base), (first - 2**n, 1, base - n)]
        yield [(1, 1, base + 1), (-1, 1, base - n)]
        yield [(1, 1, base)]
    for odd in (1, 3):
        yield [(odd, 1, fmt.emin - n)]
    yield [(1, 1, fmt.emax + 1), (-1, 1, fmt.emax - n)]


def split(u: int, v: int, exponent: int, a: Format, b: Format) -> tuple[float, float] | None:
    """Numbers of both formats whose product is u * v * 2**exponent; None where there are none."""

    def reach(n: int, fmt: Format) -> range:
        digits = abs(n).bit_length()
        return range(fmt.emin - fmt.precision + 1, fmt.emax - digits + 1)

    left, right = reach(u, a), reach(v, b)
    low, high = max(left[0], exponent - right[-1]), min(left[-1], exponent - right[0])
    if low > high:
        return None
    i = min(max(exponent // 2, low), high)
    return float(np.ldexp(float(u), i)), float(np.ldexp(float(v), exponent - i))


def tinies(unit: MatrixUnit, top: int) -> list[tuple[int, int]]:
    """Significands and exponents of the numbers beside a sum whose largest addend is 2**top."""
    if unit.window is None:
        return [(1, top - 26), (1, top - 50), (1, top - 75)]
    last = top - unit.window
    return [(1, last), (1, last - 1), (3, last - 1), (1, last - 30)]


def cases(unit: MatrixUnit, a: Format, b: Format, result: Format) -> Iterator[Case]:
    """Every decision of the formats that a sum goes through, with every tiny number beside it."""
    partials = fp.Context(unit.partials)
    formats = dict.fromkeys((unit.accumulator, unit.partials, result))
    for fmt in formats:
        for terms in decisions(fmt, a, b):
            pairs = [split(u, v, e, a, b) for u, v, e in terms]
            if None in pairs:
                continue
            big = [pair for pair in pairs if pair is not None]
            top = max(np.frexp(x)[1] + np.frexp(y)[1] - 2 for x, y in big)
            for sign, (m, e), s in product((1, -1), [(0, 0), *tinies(unit, top)], (1, -1)):
                small, extra = float(np.ldexp(float(s * m), e)), split(s * m, 1, e, a, b)
                x, y = [sign * u for u, _ in big], [v for _, v in big]
                if partials.array(small).item() == small:
                    yield Case(x, y, small)
                if extra is not None:
                    yield Case([extra[0], *x], [extra[1], *y], 0.0)
                if extra is not None and unit.terms < unit.channels:
                    gap = [0.0] * (unit.terms - 1)
                    yield Case([*x, *gap, extra[0]], [*y, *gap, extra[1]], 0.0)
                start = sign * big[0][0] * big[0][1]
                if extra is not None and len(big) > 1 and partials.array(start).item() == start:
                    yield Case([*x[1:], extra[0]], [*y[1:], extra[1]], start)


def judged(settings: UnitSettings, case: Case) -> tuple[int, int]:
    """Code and flags by exact fractions."""
    fmt, unit = settings.settings.format, settings.unit
    x, y, c = (
        to_codes(np.float32(v), f).tolist()
        for v, f in ((case.x, settings.a), (case.y, settings.b), ([case.c], unit.partials))
    )
    ask = Ask(unit, settings.a, settings.b, settings.settings)
    datum, flags = one_output(ask, x, y, c[0])
    if datum.kind == "nan":
        return canonical_nan(fmt), int(flags)
    if datum.kind == "infinite":
        return infinity(datum.sign, fmt), int(flags)
    return encode(datum.sign, datum.magnitude, fmt), int(flags)


def outcome(
    settings: UnitSettings, case: Case, engine: Callable[[Job], bool]
) -> tuple[int, int] | None:
    """Code and flags by an engine; None where it does not take the job."""
    values, flags = np.full((1, 1), case.c, np.float32), np.zeros((1, 1), np.uint8)
    a, b = np.float32([case.x]), np.float32([[v] for v in case.y])
    if not engine(Job(settings, a, b, values, flags)):
        return None
    finish(settings, len(case.x), values, flags, NO_PLACES)
    return int(to_codes(values, settings.settings.format)[0, 0]), int(flags[0, 0])


def settings_of(unit: MatrixUnit, result: Format, rounding: fp.Rounding = fp.RNE) -> UnitSettings:
    """A product of the unit's first and last input formats."""
    return UnitSettings(unit, unit.inputs[0], unit.inputs[-1], Settings(result, rounding))
