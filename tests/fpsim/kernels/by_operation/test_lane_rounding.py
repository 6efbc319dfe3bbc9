"""Roundings in the lanes' arithmetic around midpoints of both signs (corners), against fractions.

Numbers have twice the digits of the format, as its products do, so their tails reach one part in
2**p beside the middle.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from fpsim.judge.oracle import decode, round_exact
from fpsim.kernels.by_operation import lane_rounding as r
from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load, load_float, store
from fpsim.kernels.lanes.vectors import as_bits, as_float, lanes_of, select
from fpsim.kernels.rounding import modes
from fpsim.kernels.rounding.direction import set_modes
from fpsim.kernels.status_register import HAS_STATUS, TOWARD_ZERO
from fpsim.kernels.target import HAS_FMA, PRODUCT_BITS
from fpsim.records.formats import BFLOAT16, BINARY16, E4M3FN, Format
from fpsim.records.rounding import RAZ, RNA, RNE, RNZ, RTN, RTO, RTP, RTZ
from tests.tiers import pick

pytestmark = pytest.mark.skipif(not HAS_STATUS, reason="no status register that is known")

MODES = {modes.RNE: RNE, modes.RNA: RNA, modes.RNZ: RNZ, modes.RTZ: RTZ, modes.RTP: RTP,
         modes.RTN: RTN, modes.RAZ: RAZ, modes.RTO: RTO}
DIGITS = {32: 24, 64: 53}
#: Digits of bfloat16 and binary16, with room for every distance of exponents.
FAR = [Format.custom(7, 8), Format.custom(7, 11)]


def bits(value, width):
    return int(np.array(value, f"f{width // 8}").view(f"u{width // 8}"))


def rule_of(fmt, width):
    """The constants, from what their names promise."""
    drop, sign = DIGITS[width] - fmt.precision, 1 << (width - 1)
    one = bits(1.0, width)
    return np.array(r.MacRule(
        floor=bits(2.0**fmt.emin, width), step=bits(1.5 * 2.0**drop, width) - one,
        lift=bits(1.5 * 2.0**drop, width), below=(1 << drop) - 1, last=1 << drop,
        over_pos=bits(2 * fmt.max, width), over_neg=bits(2 * fmt.max, width) | sign,
        value_pos=bits(fmt.max, width), value_neg=bits(np.inf, width) | sign,
        tiny_pos=0, tiny_neg=0, start=0, nan=0, zero=sign,
        split=bits(2.0**drop + 1, width), calm=0,
    ), f"u{width // 8}")


@formula
def rounded(mode, product, has_fma, x, rule):
    result = (r.round_product if product else r.round_sum)(mode, x, rule, has_fma)
    return as_bits(r.signed_like(result, x))


@cache
def rounder(mode, product, has_fma):
    # Only numbers are captured, as in kernels, so that the loop is kept on disk.
    MODE, DIRECTION, PRODUCT, FMA = mode, r.DIRECTIONS[mode], product, has_fma

    @compiled
    def loop(x, constants, out):
        rule = r.spread_macs(constants)
        set_modes(DIRECTION)
        for i in range(0, x.shape[0], lanes_of(rule.step)):
            store(out, i, rounded(MODE, PRODUCT, FMA, load_float(x, i, rule.step), rule))

    return loop


def numbers(fmt, exponents):
    """m + t for even and odd m, t around 0, 1/2 and 1; and zeros."""
    p = fmt.precision
    step = 2.0**-p
    tails = [0, step, 0.5 - step, 0.5, 0.5 + step, 1 - step]
    firsts = [2 ** (p - 1), 2 ** (p - 1) + 1, 2**p - 2, 2**p - 1]
    x = [s * (m + t) * 2.0 ** (e - p + 1)
         for e in exponents for m in firsts for t in tails for s in (1, -1)]
    x += [0.0, -0.0]
    return x + [1.0] * (-len(x) % 16)


def check(fmt, width, mode, exponents, product):
    x = np.array(numbers(fmt, exponents), f"f{width // 8}")
    out, fused = np.zeros((2, len(x)), f"u{width // 8}")
    rounder(mode, product, False)(x, rule_of(fmt, width), out)
    if HAS_FMA:
        rounder(mode, product, True)(x, rule_of(fmt, width), fused)
        assert fused.tolist() == out.tolist()
    values = out.view(x.dtype)
    assert np.array_equal(np.signbit(values), np.signbit(x))
    for number, value in zip(x, values, strict=True):
        code, _ = round_exact(Fraction(float(number)), fmt, MODES[mode])
        assert Fraction(float(value)) == decode(code, fmt).value, float(number)


#: Lanes and modes: the quick tier has every mode of the narrow lanes, and to nearest of the wide.
PLACES = [(BINARY16, 32), (E4M3FN, 32), (BFLOAT16, 64)]
EVERY = [(fmt, width, mode) for fmt, width in PLACES for mode in MODES]
FEW = [case for case in EVERY if case[1] == 32 or case[2] == modes.RNE]


@pytest.mark.parametrize(("fmt", "width", "mode"), pick(FEW, EVERY, EVERY), ids=str)
def test_products_are_rounded_down_to_the_smallest_subnormal(fmt, width, mode):
    """In every binade of subnormal numbers, below the smallest one, and among normal ones."""
    emin, p = fmt.emin, fmt.precision
    check(fmt, width, mode, [*range(emin - p - 2, emin + 1), 0, 2], product=True)


@pytest.mark.parametrize(
    ("fmt", "width", "mode"), [c for c in pick(FEW, EVERY, EVERY) if c[0] != E4M3FN], ids=str
)
def test_sums_are_rounded_in_their_own_binade(fmt, width, mode):
    check(fmt, width, mode, [fmt.emin, -1, 0, 5], product=False)


@formula
def split(x, y, has_fma, rule):
    wide = y * as_float(rule.split)
    return as_bits(r.split_number(x, rule)), as_bits(r.split_product(x, y, wide, has_fma))


@cache
def splitter(has_fma):
    FMA = has_fma

    @compiled
    def loop(x, y, constants, numbers, products):
        rule = r.spread_macs(constants)
        for i in range(0, x.shape[0], lanes_of(rule.step)):
            u, v = load_float(x, i, rule.step), load_float(y, i, rule.step)
            number, product = split(u, v, FMA, rule)
            store(numbers, i, number)
            store(products, i, product)

    return loop


@pytest.mark.parametrize(("fmt", "width"), PLACES, ids=str)
@pytest.mark.parametrize("has_fma", [False, True])
def test_numbers_and_products_are_rounded_by_splitting(fmt, width, has_fma):
    """To nearest even, with the sign of zero: numbers of more digits, products of p digits."""
    if has_fma and not HAS_FMA:
        pytest.skip("the processor does not fuse multiply and add")
    digits = 2 ** (fmt.precision - 1)
    firsts = [digits, digits + 1, 2 * digits - 2, 2 * digits - 1, digits + digits // 2 + 1]
    x = [0.0, -0.0, *(s * m * 2.0**e for s in (1, -1) for m in firsts for e in (-6, 0, 3))]
    pairs = np.array([(u, v) for u in x for v in x])
    x, y = np.resize(pairs.T, (2, -(-len(pairs) // 16) * 16)).astype(f"f{width // 8}")
    sums = np.array(numbers(fmt, [-3, 0, 2]), x.dtype)
    sums = np.resize(sums, x.size)
    rounded, spare, products = np.zeros((3, x.size), f"u{width // 8}")
    splitter(has_fma)(sums, y, rule_of(fmt, width), rounded, spare)
    splitter(has_fma)(x, y, rule_of(fmt, width), spare, products)
    for number, value in zip(sums, rounded.view(x.dtype), strict=True):
        assert Fraction(float(value)) == _nearest(Fraction(float(number)), fmt.precision)
    assert np.array_equal(np.signbit(rounded.view(x.dtype)), np.signbit(sums))
    for u, v, value in zip(x, y, products.view(x.dtype), strict=True):
        exact = Fraction(float(u)) * Fraction(float(v))
        assert Fraction(float(value)) == _nearest(exact, fmt.precision)


def _nearest(exact, precision):
    """A number rounded to so many digits, without bounds of the exponent."""
    if exact == 0:
        return exact
    exponent = 0
    while abs(exact) / Fraction(2) ** exponent >= 2**precision:
        exponent += 1
    while abs(exact) / Fraction(2) ** exponent < 2 ** (precision - 1):
        exponent -= 1
    return round(exact / Fraction(2) ** exponent) * Fraction(2) ** exponent


@formula
def summed(mode, x, y):
    s = x + y
    none = as_bits(s) ^ as_bits(s)
    return as_bits(r.with_odd(mode, s, x, y)), select(r.not_sum(s, x, y), none + 1, none)


@cache
def summer(mode):
    MODE = mode

    @compiled
    def loop(x, y, sums, lost):
        set_modes(TOWARD_ZERO)
        for i in range(0, x.shape[0], 8):
            like = load(sums, i)
            s, d = summed(MODE, load_float(x, i, like), load_float(y, i, like))
            store(sums, i, s)
            store(lost, i, d)

    return loop


def tiny_addends():
    """Sums with far smaller addends of both signs, next to powers of two, and exact ones."""
    x = [1.0, 1 + 2.0**-52, 2 - 2.0**-52, 2.0**52, 3.0]
    y = [0.0, 2.0**-53, 2.0**-54, 2.0**-200, 2.0**-1022, 2.0**-52, 1.0, 2.0**60]
    pairs = [(s * u, t * v) for u in x for v in y for s in (1, -1) for t in (1, -1)]
    pairs += [(v, u) for u, v in pairs]
    assert len(pairs) % 8 == 0
    return np.array(pairs).T.copy()


def far_addends():
    """Random significands at every distance of exponents, with few digits and with all."""
    rng = np.random.default_rng(5)
    n = 1 << 13
    x, y = rng.integers(1 << 52, 1 << 53, (2, n)) * rng.choice((-1.0, 1.0), (2, n)) * 2.0**-52
    few = rng.random((2, n)) < 0.5
    x, y = np.where(few, np.round(np.array([x, y]) * 8) / 8, np.array([x, y]))
    return np.array([x, y * np.exp2(rng.integers(-56, 57, n).astype(float))])


@pytest.mark.parametrize("mode", [modes.RTO, modes.RAZ, modes.RTZ])
def test_a_cut_sum_knows_whether_it_is_exact(mode):
    x, y = np.concatenate([tiny_addends(), far_addends()], axis=1)
    sums, lost = np.zeros((2, len(x)), np.uint64)
    summer(mode)(x, y, sums, lost)
    for u, v, code, inexact in zip(x, y, sums.tolist(), lost.tolist(), strict=True):
        exact = Fraction(u) + Fraction(v)
        s = np.float64(u + v)
        if abs(Fraction(float(s))) > abs(exact):
            s = np.nextafter(s, 0)  # toward zero
        assert inexact == (Fraction(float(s)) != exact), (u, v)
        odd = inexact if mode != modes.RTZ else 0
        assert code == int(s.view(np.uint64)) | odd, (u, v)


@formula
def cut(mode, x, y, rule):
    return as_bits(r.round_cut_sum(mode, x + y, x, y, rule, False))


@cache
def cutter(mode):
    MODE = mode

    @compiled
    def loop(x, y, constants, out):
        rule = r.spread_macs(constants)
        set_modes(TOWARD_ZERO)
        for i in range(0, x.shape[0], lanes_of(rule.step)):
            sums = cut(MODE, load_float(x, i, rule.step), load_float(y, i, rule.step), rule)
            store(out, i, sums)

    return loop


def addends(fmt):
    """Numbers of the format next to powers of two and others, at all distances that matter."""
    p = fmt.precision
    firsts = [2 ** (p - 1), 2 ** (p - 1) + 1, 2**p - 1, 2**p - 2, 3 << p - 2]
    pairs = [(m, s * n * 2.0**e) for m in firsts for n in firsts for s in (1, -1)
             for e in (*range(-p - 3, p + 4), -30, -24, -23, 23, 24, 30)]
    pairs += [(-m, -y) for m, y in pairs] + [(m, 0.0) for m in firsts] + [(0.0, m) for m in firsts]
    pairs += [(1.0, 1.0)] * (-len(pairs) % 16)
    return np.array(pairs).T * 2.0**-p


@pytest.mark.parametrize("fmt", FAR, ids=str)
@pytest.mark.parametrize("mode", [modes.RTO, modes.RAZ])
def test_a_cut_sum_of_two_numbers_of_the_format_is_rounded_as_the_exact_one(fmt, mode):
    x, y = (np.ascontiguousarray(v, np.float32) for v in addends(fmt))
    out = np.zeros(len(x), np.uint32)
    cutter(mode)(x, y, rule_of(fmt, 32), out)
    for u, v, value in zip(x, y, out.view(np.float32), strict=True):
        code, _ = round_exact(Fraction(float(u)) + Fraction(float(v)), fmt, MODES[mode])
        assert Fraction(float(value)) == decode(code, fmt).value, (u, v)


@formula
def bounded(x, rule):
    _, held = r.beyond(x, x, rule)
    return as_bits(held)


@compiled
def bound(x, constants, out):
    rule = r.spread_macs(constants)
    store(out, 0, bounded(load_float(x, 0, rule.step), rule))


@pytest.mark.parametrize("width", [32, 64])
def test_beyond_begins_at_the_threshold(width):
    """From the threshold on a number is replaced; one below it, and NaN, stay what they are."""
    dtype, limit = f"f{width // 8}", 2 * BINARY16.max
    below = np.nextafter(np.array(limit, dtype), np.array(0, dtype))
    x = np.resize(np.array([limit, below, -limit, -below, np.inf, -np.inf, np.nan, 1], dtype), 16)
    out = np.zeros(16, f"u{width // 8}")
    bound(x, rule_of(BINARY16, width), out)
    most = BINARY16.max
    expected = [most, below, -np.inf, -below, most, -np.inf, np.nan, 1]
    lanes = min(8, PRODUCT_BITS // width)
    expected = np.array(expected, dtype)[:lanes]
    assert np.array_equal(out.view(dtype)[:lanes], expected, equal_nan=True)


@formula
def held(what, x, rule):
    return as_bits(r.held_beyond(what, x, x, rule))


@cache
def holder(what):
    WHAT = what

    @compiled
    def hold(x, constants, out):
        rule = r.spread_macs(constants)
        store(out, 0, held(WHAT, load_float(x, 0, rule.step), rule))

    return hold


@pytest.mark.parametrize("value", [BINARY16.max, np.inf, np.nan], ids=str)
@pytest.mark.parametrize("width", [32, 64])
def test_what_is_held_is_what_beyond_gives_for_both_signs(width, value):
    dtype, sign = f"f{width // 8}", 1 << (width - 1)
    limit = np.nextafter(np.array(BINARY16.max, dtype), np.array(np.inf, dtype))
    code = bits(value, width)
    rule = np.array(r.MacRule(*[0] * len(r.FIELDS))._replace(
        over_pos=bits(limit, width), over_neg=bits(limit, width) | sign,
        value_pos=code, value_neg=code | sign,
    ), f"u{width // 8}")
    x = [limit, BINARY16.max, 2 * limit, 1, 0, -limit, -BINARY16.max, -2 * limit, -1, -0.0]
    if value != BINARY16.max:
        x += [np.inf, -np.inf, np.nan]
    x = np.resize(np.array(x, dtype), 16)
    out = np.zeros((2, 16), f"u{width // 8}")
    holder(r.STOPS if value == BINARY16.max else r.GROWS)(x, rule, out[0])
    bound(x, rule, out[1])
    first, second = out[:, : PRODUCT_BITS // width].view(dtype)
    assert np.array_equal(first, second, equal_nan=True)
    assert np.array_equal(np.signbit(first), np.signbit(second)) or np.isnan(value)


def test_every_mode_has_a_direction():
    assert set(r.DIRECTIONS) == {*MODES, modes.SR}
    assert set(r.DIRECTIONS) - r.FUSED_MODES == {modes.RNA, modes.RNZ}
    assert {MODES[m] for m in r.NATIVE_MODES} == {RNE, RTZ, RTP, RTN}
