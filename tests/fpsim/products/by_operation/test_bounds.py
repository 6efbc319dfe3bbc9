"""Bounds of products: law (true of every sum and product), corners of the lanes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim.judge.oracle import decode, round_exact
from fpsim.kernels.by_operation.results import STRETCH
from fpsim.products.by_operation.bounds import block_lows, find_lane, measure
from fpsim.products.by_operation.chain import Chain
from fpsim.products.by_operation.general import run_general
from fpsim.products.by_operation.rules import mac_rules
from fpsim.products.jobs.job import Job
from fpsim.records.settings import Settings
from tests.tiers import pick

SCALES = (1.0, 2.0**-10, 2.0**-22, 300.0)


def operands(fmt, scale, seed=0, m=4, k=30, n=5):
    rng = np.random.default_rng(seed)
    context = fp.Context(fmt, overflow="saturate")
    a, b = (context.array(rng.standard_normal(s) * scale).values.copy() for s in ((m, k), (k, n)))
    a[0, ::3] = 0
    return a, b


def general(settings, fused, a, b):
    """Values and flags by the engine without conditions."""
    values = np.zeros((len(a), b.shape[1]), a.dtype)
    chain = Chain(settings, "fused" if fused else "separate")
    job = Job(chain, a, b, values, np.zeros(values.shape, np.uint8))
    assert run_general(job)
    return values, fp.Flags(job.flags)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("scale", SCALES)
def test_bounds_hold_for_every_product_and_sum(scale, fused):
    a, b = operands(fp.BINARY16, scale)
    product = measure(mac_rules(Settings(fp.BINARY16), fused), a, b)
    terms = np.abs(a[:, :, None].astype(float) * b)
    assert product.largest == np.abs(a).max().astype(float) * np.abs(b).max()
    assert product.least <= terms[terms > 0].min()
    assert product.most >= terms.sum(axis=1).max()
    # Every product is a multiple of the last digit that a product can have.
    digit = 2.0 ** math.floor(math.log2(product.last))
    assert (terms / digit % 1 == 0).all()
    assert product.last <= product.least


@pytest.mark.parametrize("mode", [fp.RNE, fp.RAZ], ids=str)
@pytest.mark.parametrize("scale", [2.0**-20, 1.0, 2.0**20])
def test_terms_that_are_all_the_largest_stay_within_the_bounds(scale, mode):
    """Rounded away from zero, a sum of 600 terms of bfloat16 is more than twice the exact one."""
    k, x = 600, scale * (1 + 2.0**-7)
    a, b = np.full((1, k), x, np.float32), np.full((k, 1), x, np.float32)
    settings = Settings(fp.BFLOAT16, mode)
    product = measure(mac_rules(settings, False), a, b)
    values, _ = general(settings, False, a, b)
    assert (values > 2 * k * x * x) == (mode == fp.RAZ)
    assert product.most >= max(k * x * x, values.item())


@pytest.mark.parametrize("mode", pick((fp.RNE, fp.RTN), *[(fp.RNE, fp.RTZ, fp.RTP)] * 2), ids=repr)
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("scale", SCALES)
def test_certain_flags_are_raised_and_no_impossible_one_is(scale, fused, mode):
    for seed in range(4):
        a, b = operands(fp.BINARY16, scale, seed)
        settings = Settings(fp.BINARY16, mode)
        product = measure(mac_rules(settings, fused), a, b)
        values, flags = general(settings, fused, a, b)
        assert product.certain & flags == product.certain
        possible = product.certain | product.possible
        if product.checked and product.rules.shows_overflow:
            possible |= fp.Flags.OVERFLOW | fp.Flags.INVALID
            assert bool(flags & fp.Flags.OVERFLOW) == bool((~np.isfinite(values)).any())
        assert flags & ~possible == fp.Flags.NONE


@pytest.mark.parametrize("fused", [False, True])
def test_products_below_the_normal_numbers_that_are_in_the_format_raise_nothing(fused):
    """2**-8 squared is a subnormal number of binary16, 9 * 2**-26 lies between two of them."""
    settings = Settings(fp.BINARY16)
    for factor, expected in (
        (2.0**-8, fp.Flags.NONE), (1.5 * 2.0**-12, fp.Flags.UNDERFLOW | fp.Flags.INEXACT),
    ):
        a, b = np.full((1, 1), factor, np.float32), np.full((1, 1), factor, np.float32)
        assert measure(mac_rules(settings, fused), a, b).certain == expected
        assert general(settings, fused, a, b)[1] == expected


def test_overflow_is_looked_for_only_where_it_can_be():
    a, b = np.full((1, 8), 64.0, np.float32), np.full((8, 1), 64.0, np.float32)
    assert not measure(mac_rules(Settings(fp.BINARY16), False), a, b).checked  # 2**15
    assert measure(mac_rules(Settings(fp.BINARY16), False), a * 4, b).checked
    shown = {
        (str(mode), policy): measure(
            mac_rules(Settings(fp.BINARY16, mode, policy), False), a, b
        ).rules.shows_overflow
        for mode in (fp.RNE, fp.RTZ, fp.RTP, fp.RAZ)
        for policy in ("infinity", "saturate", "nan")
    }
    assert {key for key, shows in shown.items() if shows} == {
        (mode, policy) for mode in ("RNE", "RAZ") for policy in ("infinity", "nan")
    }


@pytest.mark.parametrize("mode", [fp.RNE, fp.RNA, fp.RTO, fp.RAZ], ids=str)
@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.E4M3FN, fp.E5M2, fp.F152, fp.E2M1FN], ids=str)
def test_no_sum_overflows_within_a_stretch_that_begins_calm(fmt, mode):
    """The largest terms one after the other, from the largest sum that is calm, exactly."""
    calmness = set()
    for largest in np.sqrt(fmt.max * 2.0 ** np.arange(-12.0, 1, 0.5)):
        factors = fp.Context(fmt, overflow="saturate").array([[largest]]).values
        product = measure(mac_rules(Settings(fmt, mode), False), factors, factors)
        calmness.add(product.calm > 0)
        term, _ = round_exact(Fraction(product.largest), fmt, mode)
        total, term = Fraction(product.calm), decode(term, fmt).value
        assert decode(round_exact(total, fmt, mode)[0], fmt).value == total
        for _ in range(STRETCH if product.calm else 0):
            assert total + term <= Fraction(fmt.max)
            code, _ = round_exact(total + term, fmt, mode)
            total = decode(code, fmt).value
    assert calmness == {False, True} or fmt == fp.E2M1FN


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4, 8), (1, 1), (9, 17)])
def test_smallest_numbers_of_blocks(shape, dtype):
    x = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    x[::3, ::2] = 0
    x[:4, 8:16] = -0.0
    lows = block_lows(x, 4, 8)
    for (i, j), low in np.ndenumerate(lows):
        block = np.abs(x[4 * i : 4 * i + 4, 8 * j : 8 * j + 8])
        assert low == min(block[block > 0], default=np.inf)
    assert lows.shape == (-(-shape[0] // 4), -(-shape[1] // 8))


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("side", [0, 1])
def test_an_operand_that_is_not_finite_has_no_bounds(side, special):
    pair = operands(fp.BINARY16, 1.0)
    pair[side][-1, -1] = special
    assert measure(mac_rules(Settings(fp.BINARY16), False), *pair) is None


def test_operands_of_zeros_have_bounds():
    zeros = np.zeros((3, 3), np.float32)
    product = measure(mac_rules(Settings(fp.BINARY16), False), zeros, zeros)
    assert (product.largest, product.certain) == (0.0, fp.Flags.NONE)


def test_many_rows_are_looked_at_in_pieces():
    """The smallest and the largest number may stand in any piece."""
    a = np.ones((3000, 64), np.float32)
    a[2999, 63], a[1500, 2] = 2.0**-14, 5.0
    b = np.ones((64, 1), np.float32)
    product = measure(mac_rules(Settings(fp.BINARY16), False), a, b)
    assert (product.least, product.largest) == (2.0**-14, 5.0)
    column = measure(mac_rules(Settings(fp.BINARY16), False), b.T, a.T.copy())
    assert (column.least, column.largest) == (2.0**-14, 5.0)


def width(fmt, mode=fp.RNE, scale=1.0, fused=False, **policies):
    lane = find_lane(
        measure(mac_rules(Settings(fmt, mode, **policies), fused), *operands(fmt, scale))
    )
    return lane and lane.width


@pytest.mark.parametrize(
    ("fmt", "mode", "fused", "expected"),
    [
        (fp.BINARY16, fp.RNE, False, 32),  # 2 * 11 + 2 digits
        (fp.Format.custom(5, 12), fp.RNE, False, 64),  # 2 * 12 + 2
        (fp.Format.custom(5, 12), fp.RTZ, False, 32),  # 2 * 12
        (fp.Format.custom(5, 13), fp.RTZ, False, 64),
        (fp.Format.custom(5, 12), fp.RNE, True, 32),
        (fp.BINARY16, fp.SR(13), False, 32),  # 11 + 13
        (fp.BINARY16, fp.SR(14), False, 64),
        (fp.BINARY32, fp.RNE, False, 64),
        (fp.Format.custom(9, 26), fp.RNE, False, None),  # 2 * 26 + 2
        (fp.Format.custom(9, 26), fp.RTZ, False, 64),
    ],
    ids=str,
)
def test_lanes_have_the_digits_of_exact_products(fmt, mode, fused, expected):
    assert width(fmt, mode, fused=fused) == expected


def test_lanes_have_the_range_of_every_product():
    """Multiples of 2**-126 in 32 bits: products of bfloat16 below 2**-110 stand in 64."""
    assert width(fp.BFLOAT16) == 32
    assert width(fp.BFLOAT16, scale=2.0**-50) == 32
    assert width(fp.BFLOAT16, scale=2.0**-60) == 64
    assert width(fp.BFLOAT16, scale=2.0**50) == 32
    assert width(fp.BFLOAT16, scale=2.0**62) == 64


@pytest.mark.parametrize(("most", "width"), [(23, 32), (24, 64), (32, 64)])
def test_random_digits_of_small_results_fit_into_those_of_a_lane(most, width):
    a, b = operands(fp.BINARY16, 2.0**-10)
    settings = Settings(fp.BINARY16, fp.SR(13, subnormal_bits=most))
    assert find_lane(measure(mac_rules(settings, False), a, b)).width == width
