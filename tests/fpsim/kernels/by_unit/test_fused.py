"""Chains of fused multiply-adds: midpoints and tiny accumulators (corners), against fractions.

The way of processors without the instruction is tested beside the one in use.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fpsim.judge.oracle import decode, round_exact
from fpsim.kernels.by_unit.fused import _to_odd, suspects
from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.memory import load_float, splat_item
from fpsim.kernels.lanes.vectors import any_lane, concat, high_half, low_half
from fpsim.products.by_unit.fused import run_fused
from fpsim.records.formats import BINARY32
from tests.fpsim.kernels.by_unit.by_engine import check, job_of, multiply
from tests.fpsim.kernels.on_lanes import on_floats

UNIT = "AMP_F32_F32"


def on_midpoints():
    """x, y, z: x y = (2**24 + 1)(1 or 3) is between two numbers, or z is; the rest is tiny."""
    cases = []
    for tiny in (2.0**-30, 2.0**-100, 2.0**-149, 0.0):
        for s in (1, -1):
            for t in (tiny, -tiny):
                cases += [(s * 97.0, 257.0 * 673.0, t), (s * 3 * 97.0, 257.0 * 673.0, t)]
                cases += [(s * (1 + 2.0**-12), 1 - 2.0**-12, t), (t, 1.0, s * 2.0**24)]
                cases += [(s * 2.0**-12, 2.0**-12, 1 + 2.0**-23), (s * 0.5, 1.0, 2.0**24 - 1)]
    return np.float32(cases)


def expected(x, y, z):
    code, _ = round_exact(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), BINARY32)
    return decode(code, BINARY32).value


def test_the_factors_of_a_midpoint():
    assert 97 * 257 * 673 == 2**24 + 1


def test_without_the_instruction_a_sum_is_rounded_once():
    def term(u, v, w):
        halves = [_to_odd(h(u), h(v), h(w)) for h in (low_half, high_half)]
        return concat(*halves)

    cases = on_midpoints()
    x, y, z = (np.ascontiguousarray(v) for v in cases.T)
    assert len(x) % 16 == 0
    sums = on_floats(term, x, y, z).view(np.float32)
    for case, value in zip(cases, sums, strict=True):
        assert Fraction(float(value)) == expected(*case), case


def test_a_chain_rounds_once_for_each_term():
    """The first term rounds to z, the second one is a midpoint with a tiny accumulator or not."""
    for x, y, z in on_midpoints()[::2]:
        if 0 < abs(z) < 2.0**-126 or 0 < abs(x) < 2.0**-126:
            continue
        first = (z, 1.0)
        values, _ = multiply(run_fused, job_of(UNIT, [[first[0], x]], [[first[1]], [y]]))
        assert Fraction(float(values[0, 0])) == expected(x, y, z), (x, y, z)


@pytest.mark.parametrize("seed", range(2))
def test_random_chains_with_cancellation(seed):
    rng = np.random.default_rng(seed)
    x = np.float32(rng.standard_normal((5, 16)) * 2.0 ** rng.integers(-9, 9, (5, 16)))
    x[:, 1::2] = -x[:, ::2] * np.float32(1 + 2.0**-23)
    b = np.float32(rng.standard_normal((16, 17)))
    b[1::2] = b[::2]
    check(run_fused, UNIT, x, b, np.float32(rng.standard_normal((5, 17))))


@pytest.mark.parametrize("seed", range(2))
def test_suspect_sums_are_left_to_another_engine(seed):
    """-0 after an underflow; below 2**-126 where tiny sums become zero. Nothing is written."""
    underflow = [[-(2.0**-100)]], [[2.0**-100]]
    tiny = [[2.0**-100]], [[2.0**-30]]
    for operands, policy in ((underflow, "keep"), (tiny, "flush_results"), (tiny, "flush_both")):
        job = job_of(UNIT, *operands, subnormals=policy)
        assert not run_fused(job)
        assert job.values.tolist() == [[0.0]]
    check(run_fused, UNIT, *tiny, subnormals="keep")
    check(run_fused, UNIT, [[2.0**-127]], [[2.0]], 1.0, subnormals="flush_both")


@pytest.mark.parametrize(
    ("value", "limit", "expected"),
    [
        (0.0, 0x00800000, False), (-0.0, 0x00800000, True), (2.0**-149, 0x00800000, True),
        (-(2.0**-127), 0x00800000, True),
        # The smallest normal number may have been tiny before it was rounded.
        (2.0**-126, 0x00800000, True), (-(2.0**-126), 0x00800000, True),
        (2.0**-126 + 2.0**-149, 0x00800000, False),
        (2.0**-149, 0, False), (-0.0, 0, True), (1.0, 0x00800000, False),
    ],
)
def test_suspects_are_minus_zero_and_numbers_up_to_the_limit(value, limit, expected):
    tile = np.ones(16, np.float32)
    tile[7] = value
    assert _has_suspects(tile, np.full(1, limit, np.uint32)) == expected


@compiled
def _has_suspects(tile, limit):
    most = splat_item(limit, 0)
    return any_lane(suspects((load_float(tile, 0, most),), most != most, most))
