"""Bounds by which lanes, carriers and engines are picked, each tried in every case.

The dispatchers themselves are asked which lanes they pick, for every number of terms, window,
precision and range that they take; what the lanes then have to hold is computed in whole numbers.
Where a magnitude is free, the cases are its powers of two.

Source    docs/semantics.md §3, §4, §5.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from fpsim.elementwise.constants import LANES, exact_width
from fpsim.judge.proofs.terms import Theory
from fpsim.judge.proofs.theorem import Finding, Point, SolverClaim, Theorem
from fpsim.kernels.by_unit.tiles import WINDOW_31, WINDOW_32, WINDOW_64, WINDOW_PAIR
from fpsim.products.by_operation.bounds import ProductRange, find_lane, measure
from fpsim.products.by_operation.rules import MacRules
from fpsim.products.by_unit import exact as exact_engine
from fpsim.products.by_unit import fused as fused_engine
from fpsim.products.by_unit import window as window_engine
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Reach
from fpsim.products.nearest_sums import is_nearest
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, E4M3, E5M2, Format
from fpsim.records.rounding import MODES, RNE, RTZ, SR
from fpsim.records.settings import Settings
from fpsim.records.units import MatrixUnit

__all__ = ["theorems"]

#: A case by name, and whether what is picked for it holds everything.
Case = tuple[str, bool]

_BINARY32 = Settings(BINARY32)


# Windowed units -------------------------------------------------------------------------------


def _windowed() -> Iterator[UnitSettings]:
    """Every number of terms and every window that may fit, of formats with 2 to 22 digits."""
    for fmt in (BINARY16, BFLOAT16, E4M3, E5M2, Format.custom(8, 12), Format.custom(8, 13)):
        for terms, digits in itertools.product(range(1, 33), range(1, 49)):
            for rounding in (RNE, RTZ):
                unit = MatrixUnit(
                    "BOUNDS", "none", (fmt,), BINARY32, terms=terms, window=digits,
                    rounding=rounding,
                )
                yield UnitSettings(unit, fmt, fmt, _BINARY32)


def _largest_sum(settings: UnitSettings, with_start: bool) -> int:
    """The largest sum of a call in units of 2**-window below the largest exponent."""
    unit, p = settings.unit, settings.a.precision
    assert unit.window is not None
    product = ((1 << p) - 1) ** 2  # in units of 2**-(2 p - 2)
    addend = (product << unit.window) >> (2 * p - 2)
    start = ((1 << 24) - 1 << unit.window) >> 23
    return unit.terms * addend + (start if with_start else 0)


def _sum_is_held(settings: UnitSettings) -> bool:
    """Whether the lane that the dispatcher picks holds every product and every sum."""
    sums = window_engine._sums(settings)
    if sums is None:
        return True
    products, all_of_them = _largest_sum(settings, False), _largest_sum(settings, True)
    if sums.lanes == WINDOW_64:
        return all_of_them < 1 << 53 and 2 * settings.a.precision <= 53
    if 2 * settings.a.precision > 24:
        return False
    if sums.lanes == WINDOW_31:
        return all_of_them < 1 << 31
    if sums.lanes == WINDOW_32:
        return products < 1 << 31 and all_of_them < 1 << 32
    assert sums.lanes == WINDOW_PAIR
    terms, middle = settings.unit.terms, window_engine._middle(settings)
    if terms == 1:
        return True
    # The float stays in its binade and takes nothing of addends that are cut, nor leaves it any
    # digit of what it takes of an accumulator. Only a carried integer has more than 24 digits.
    rests = (1 << 23) + terms * (1 << middle - 24)
    few = 1 << 31 if window_engine._is_carried(settings) else (1 << 24) + 1
    digits = settings.a.precision + settings.b.precision
    return 2 * all_of_them < 1 << middle and digits + 23 <= middle <= 47 and rests < few


def _sums_are_held() -> Iterator[Case]:
    for settings in _windowed():
        unit = settings.unit
        name = f"{settings.a} terms={unit.terms} window={unit.window} {unit.rounding}"
        yield name, _sum_is_held(settings)


def _fields_are_held() -> Iterator[Case]:
    """Scales, and what undoes them, are normal numbers; zeros never have the largest exponent.

    Operands are powers of two: left ones from 2**low on, right ones 1, or the reverse.
    """
    for digits in range(2, 49):
        unit = MatrixUnit("BOUNDS", "none", (BFLOAT16,), BINARY32, terms=2, window=digits)
        settings = UnitSettings(unit, BFLOAT16, BFLOAT16, _BINARY32)
        for low, top, start in itertools.product(
            range(-127, 8), (-20, 0, 59, 60, 61, 62, 100), (None, -126, -100, -60, 0)
        ):
            if low <= top:
                name = f"window={digits} low={low} top={top} start={start}"
                yield name, _field_is_held(settings, low, top, start)


def _field_is_held(settings: UnitSettings, low: int, top: int, start: int | None) -> bool:
    window = settings.unit.window
    assert window is not None
    least_start, most_start = (math.inf, 0.0) if start is None else (2.0**start, 2.0**start)
    reach = Reach(2.0**low, 2.0**top, 1.0, 1.0, least_start, most_start)
    first, last, *_ = reach.exponents(-126, -126, 0)
    if not window_engine._fits(settings, reach, 1 << 10, first, last):
        return True
    # Every sum is a multiple of this, and below that: accumulators of later calls too.
    least = min(first - window, first if start is None else start)
    most = max(last, 0 if start is None else start) + 13
    narrow = window_engine._narrow(settings, reach, first, max(top, 0))
    for width in (32, 64) if narrow else (64,):
        place, bias, zero_left, zero_right = window_engine._FIELDS[width]
        fields = [bias + window - e for e in (least, most)] + [bias + e - window
                                                              for e in (least, most)]
        if not all(0 < field < 2 * bias + 1 for field in fields):
            return False
        # A zero beside the largest number stands below every number that takes part.
        floor = 0 if width == 32 else bias + least
        largest = max(top, 0)
        if zero_left + largest > floor or bias + largest + zero_right > floor:
            return False
        if place != (23 if width == 32 else 52):
            return False
    return True


# Exact and fused units ------------------------------------------------------------------------


def _limbs_hold() -> Iterator[Case]:
    """The higher limb stays in its binade, the lower one is exact, results are normal."""
    for fmt, terms, k in itertools.product(
        (BFLOAT16, BINARY16, Format.custom(8, 13)), (1, 3, 16, 17, 32), (16, 1000, 1 << 20)
    ):
        unit = MatrixUnit("BOUNDS", "none", (fmt,), BINARY32, terms, None)
        settings = UnitSettings(unit, fmt, fmt, _BINARY32)
        if not exact_engine._knows(settings):
            continue
        for low, high in itertools.product(range(-130, 60, 3), repeat=2):
            if low <= high:
                name = f"{fmt} terms={terms} K={k} low={low} high={high}"
                yield name, _limb_holds(settings, k, low, high)


def _limb_holds(settings: UnitSettings, k: int, low: int, high: int) -> bool:
    reach = SimpleNamespace(
        finite=True, exponents=lambda *_: (low, high, 0, 0), most_start=0.0, least_start=math.inf
    )
    job: Any = SimpleNamespace(reach=lambda: reach, a=np.empty((0, k)))
    middle = exact_engine._unit(settings, job)
    if middle is None:
        return True
    p, terms = settings.a.precision, settings.unit.terms
    unit = Fraction(middle) / Fraction(3 << 51)  # the last place of its binade
    last = Fraction(2) ** (low - 2 * (p - 1))
    most = k * Fraction(2) ** (high + 2)
    in_binade = most + (terms + 1) * unit < 2**51 * unit
    # Each addend leaves at most half a unit; what is left of all is a multiple of the last digit.
    lower = (terms + 1) * unit / 2 <= 2**53 * last
    return in_binade and lower and last >= Fraction(2) ** -126 and 2 * most < Fraction(2) ** 128


def _fused_sums_are_normal() -> Iterator[Case]:
    """Where sums are not looked at they are zero or normal: multiples of a normal number."""
    for low, flush in itertools.product(range(-149, 128), (False, True)):
        least = math.ldexp(1.0, low)
        digit = Fraction(fused_engine._last(least, flush))
        # The number itself has 24 digits; subnormal ones are flushed, or end at 2**-149.
        smallest = Fraction(2) ** (max(low, -126) if flush else low)
        yield f"least={least} flush={flush}", digit <= smallest / 2**23


# Products by operation ------------------------------------------------------------------------


def _macs() -> Iterator[MacRules]:
    modes = [*MODES.values(), SR(8), SR(13)]
    for (exponent_bits, p), mode, fused in itertools.product(
        ((4, 4), (5, 3), (5, 11), (8, 8), (8, 11), (8, 12), (8, 13), (8, 24)), modes, (False, True)
    ):
        rules = MacRules(Settings(Format.custom(exponent_bits, p), mode), fused)
        if rules.is_ordinary:
            yield rules


def _lanes_of_macs_hold() -> Iterator[Case]:
    """Products are exact and normal, and the number that rounds by being added does not overflow.

    Digits beyond the product's are one to be odd and one to decide; random ones are looked at too.
    """
    for rules in _macs():
        edges = [2.0**e for e in (-160, -149, -127, -126, -125, -100, 0, 60, 100, 115, 120, 127)]
        for least, most in itertools.product(edges, edges):
            product = ProductRange(
                rules, np.empty(0), np.empty(0), np.array([least]), min(least, most), most
            )
            lane = find_lane(product)
            name = f"{rules.settings.format} {rules.settings.rounding} least={least} most={most}"
            yield name, lane is None or _mac_is_held(product, lane.width)


def _mac_is_held(product: ProductRange, width: int) -> bool:
    rules, lane = product.rules, LANES[width]
    p = rules.precision
    digits = 2 * p + (2 if rules.to_nearest and not rules.fused else 0)
    if rules.settings.rounding.stochastic:
        digits = max(digits, p + rules.settings.random_bits)
    exact = digits <= lane.digits and rules.random_most < lane.digits
    normal = Fraction(product.least) / 4**p >= Fraction(2) ** (1 - lane.bias)
    most = Fraction(product.most)
    if product.checked:
        most = 2 * (Fraction(rules.largest) + Fraction(product.largest))
    magic = most * 2 ** (lane.digits - p + 1) < Fraction(2) ** (lane.bias + 1)
    holds = width == 64 or exact_width("convert", rules.settings, 4) == 32
    return exact and normal and magic and holds


def _sums_are_measured() -> Iterator[Case]:
    """No chain of terms, each rounding as large as its mode may give, exceeds what is measured."""
    for rules in _macs():
        for k, value in itertools.product((1, 7, 40), (0.75, 1.75, rules.smallest_normal)):
            a, b = np.full((1, k), value, np.float32), np.full((k, 1), value, np.float32)
            product = measure(rules, a, b)
            assert product is not None
            total = Fraction(0)
            for _ in range(k):
                term = Fraction(value) ** 2
                total += term if rules.fused else _rounded_up(term, rules)
                total = _rounded_up(total, rules)
            name = f"{rules.settings.format} {rules.settings.rounding} K={k} {value}"
            yield name, total <= Fraction(product.most)


def _rounded_up(x: Fraction, rules: MacRules) -> Fraction:
    """The largest number that the mode may give; without an end of the range."""
    exponent = x.numerator.bit_length() - x.denominator.bit_length() - rules.precision
    unit = max(Fraction(rules.smallest_subnormal), Fraction(2) ** exponent)
    if x >= unit * 2**rules.precision:
        unit *= 2
    if rules.to_nearest:
        return math.floor(x / unit + Fraction(1, 2)) * unit
    return -(-x // unit) * unit


def _nearest_sums_decide() -> Iterator[Case]:
    """Chains in binary64: a sum of two numbers of the format loses nothing that a tie needs."""
    for fmt in _formats():
        settings = Settings(fmt)
        for order in ("sequential", "kahan"):
            if is_nearest(settings, order):
                enough = 2 * fmt.precision + 2 <= 53
                yield f"{fmt} {order}", enough and fmt.max < 2.0**1022


# Elements -------------------------------------------------------------------------------------


def _formats() -> Iterator[Format]:
    """Formats of every width that there may be, with usual and unusual biases."""
    for exponent_bits, precision in itertools.product(range(2, 10), range(2, 27)):
        for moved in (-20, -3, 0, 3, 20):
            bias = (1 << (exponent_bits - 1)) - 1 + moved
            try:
                yield Format.custom(exponent_bits, precision, bias=bias)
            except ValueError:
                continue  # a range beyond what any format may have


def _quantum(fmt: Format) -> Fraction:
    return Fraction(2) ** (fmt.emin - fmt.precision + 1)


def _smallest(lane_bias: int, digits: int) -> Fraction:
    """The smallest subnormal of a lane."""
    return Fraction(2) ** (2 - lane_bias - digits)


def _carriers_hold() -> Iterator[Case]:
    """A carrier has every value of its format."""
    for fmt in _formats():
        lane = LANES[8 * fmt.carrier.itemsize]
        fits = fmt.precision <= lane.digits and Fraction(fmt.max) < Fraction(2) ** (lane.bias + 1)
        yield str(fmt), fits and _quantum(fmt) >= _smallest(lane.bias, lane.digits)


def _products_are_held() -> Iterator[Case]:
    """Lanes hold every product of two numbers of the format exactly."""
    for fmt in _formats():
        lane = LANES[exact_width("multiply", Settings(fmt), fmt.carrier.itemsize)]
        exact = 2 * fmt.precision <= lane.digits
        below = Fraction(fmt.max) ** 2 < Fraction(2) ** (lane.bias + 1)
        yield str(fmt), exact and below and _quantum(fmt) ** 2 >= _smallest(lane.bias, lane.digits)


def _sums_are_decided() -> Iterator[Case]:
    """Sums rounded to odd in the lanes keep two digits, and random ones, beyond the format's."""
    roundings = (*MODES.values(), SR(4), SR(8), SR(13), SR(16))
    for fmt, rounding in itertools.product(_formats(), roundings):
        try:
            settings = Settings(fmt, rounding)
        except ValueError:
            continue  # more random digits than the format takes
        lane = LANES[exact_width("add", settings, fmt.carrier.itemsize)]
        whole = rounding.proportional and settings.random_bits <= lane.digits - fmt.precision
        digits = fmt.precision + (0 if whole else settings.random_most) + (0 if whole else 2)
        below = 2 * Fraction(fmt.max) < Fraction(2) ** (lane.bias + 1)
        # Just below the lane's end, sums of numbers with half of its digits are exact.
        yield f"{fmt} {rounding}", digits <= lane.digits and (
            below or 2 * fmt.precision <= lane.digits
        )


def _conversions_are_decided() -> Iterator[Case]:
    """Lanes of 32 bits have two digits to spare, and the number whose last digit is the quantum."""
    for fmt in _formats():
        if exact_width("convert", Settings(fmt), 4) == 32:
            exponent = fmt.emin - fmt.precision + 1
            grid = fmt.emin == -126 or (exponent >= -126 and exponent + 23 <= 127)
            yield str(fmt), grid and fmt.precision + 2 <= 24


# Theorems -------------------------------------------------------------------------------------

_FAMILIES: tuple[tuple[str, Callable[[], Iterator[Case]], str], ...] = (
    ("lanes of windowed units", _sums_are_held,
     "the lanes that are picked hold every sum of a call, of all terms and windows"),
    ("exponents of windowed units", _fields_are_held,
     "scales are normal numbers in the lanes that are picked, and zeros stand below all numbers"),
    ("limbs of exact units", _limbs_hold,
     "two limbs hold every sum of a product that the exact engine takes"),
    ("sums of fused units", _fused_sums_are_normal,
     "the last digit by which the fused engine decides is none of a larger number"),
    ("lanes of products by operation", _lanes_of_macs_hold,
     "products and sums are exact enough, normal and in range in the lanes that are picked"),
    ("largest sums of products by operation", _sums_are_measured,
     "no chain of roundings exceeds the bound that is measured"),
    ("lanes of sums to nearest", _nearest_sums_decide,
     "chains that are added in binary64 keep every digit that a tie needs"),
    ("carriers of formats", _carriers_hold, "a carrier has every value of its format"),
    ("lanes of products", _products_are_held,
     "the lanes that multiplication picks hold every product of the format"),
    ("lanes of sums", _sums_are_decided,
     "the lanes that addition picks keep every digit that a rounding looks at"),
    ("lanes of conversions", _conversions_are_decided,
     "lanes of 32 bits that conversions pick hold the grid of the format"),
)


def _claim(cases: Callable[[], Iterator[Case]]) -> SolverClaim:
    """All cases: the number of the first that does not hold is the counterexample."""
    theory = Theory()
    at = theory.variable("case", 32)
    failing = [i for i, (_, holds) in enumerate(cases()) if not holds]
    goal = theory.truth(True) if not failing else at != failing[0]
    return SolverClaim(theory, goal)


def _check(cases: Callable[[], Iterator[Case]], point: Point) -> Finding:
    """The case by name, and that what was picked holds it."""
    name, holds = next(itertools.islice(cases(), point["case"], None), ("none", True))
    return Finding(f"{name}: {'holds' if holds else 'is too small'}", f"{name}: holds")


def theorems() -> Iterator[Theorem]:
    """One for each choice of lanes, carriers and engines."""
    for name, cases, statement in _FAMILIES:
        yield Theorem(
            name, "lanes", statement, partial(_claim, cases), partial(_check, cases), quick=True,
            about="no sum of a call, no product leaves the lanes that are picked (all cases tried)",
        )
