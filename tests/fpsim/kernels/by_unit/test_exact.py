"""Exact calls where binary64 holds the sum and where it does not (corners), against fractions.

The short way is right only where no addition is inexact; the operands beside midpoints need more
digits than binary64 has, so the flag of the processor must send them the long way.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import fpsim.products.by_unit.exact as engine
from fpsim.judge.oracle import decode, round_exact
from fpsim.kernels.by_unit.exact import (
    _nearest_by_integers,
    _nearest_by_splitting,
    _nearest_by_sums,
    _nearest_quiet,
    _odd_sum,
    _rounded_once,
)
from fpsim.kernels.by_unit.tiles import EXACT, FUSED
from fpsim.kernels.lanes.vectors import as_bits, as_float
from fpsim.kernels.rounding.store import BY_INTEGERS, LOUD, QUIET
from fpsim.kernels.target import HAS_ADDERS, HAS_FMA, HAS_QUIET_ADD
from fpsim.products.by_unit.exact import _task, run_exact
from fpsim.products.by_unit.task import tile_variant
from fpsim.products.by_unit.tiles import run_tiles
from fpsim.records.formats import BINARY32
from fpsim.records.rounding import RNE
from fpsim.records.units import find_unit
from tests.fpsim.kernels.by_unit.by_engine import at_the_edge, check, job_of, multiply
from tests.fpsim.kernels.on_lanes import on_bits, on_floats
from tests.tiers import pick

UNIT = "AMP_F16_F32.exact"


@pytest.mark.parametrize(
    "how",
    [_nearest_by_integers, _nearest_by_splitting, _nearest_quiet, _nearest_by_sums],
    ids=lambda f: f.__name__,
)
def test_roundings_are_those_of_the_processor(how):
    """Numbers around midpoints, even and odd, of both signs; the last one carries into 2.0."""
    if how in (_nearest_quiet, _nearest_by_sums) and not (HAS_QUIET_ADD and HAS_FMA):
        pytest.skip("the processor has no such addition")
    below = 2.0**-52
    x = [m + t for m in (1.0, 1 + 2.0**-23, 2 - 2.0**-23) for t in (0, 2.0**-24, 3 * 2.0**-25)]
    x += [v + s for v in x for s in (below, -below) if 1 <= v + s < 2]
    x = np.array([0.0, *(s * v * 2.0**e for v in x for s in (1, -1) for e in (-100, 0, 90))])
    x = np.resize(x, -(-len(x) // 8) * 8)
    rounded = on_bits(lambda a: as_bits(how(as_float(a))), x.view(np.uint64))
    assert np.array_equal(rounded.view(np.float64), x.astype(np.float32).astype(np.float64))


@pytest.mark.skipif(not HAS_QUIET_ADD, reason="the processor has no such addition")
def test_inexact_sums_are_odd():
    """Addends far below the last digit and beside its half, of both signs; exact sums stay."""
    x, y = sums_with_tails((1.0, 1 + 2.0**-52, 2 - 2.0**-52, 0.0))
    odd = on_floats(lambda u, v: as_bits(_odd_sum(u, v)), x, y)
    for u, v, bits in zip(x, y, odd, strict=True):
        exact, value = Fraction(u) + Fraction(v), Fraction(float(bits.view(np.float64)))
        ulp = Fraction(np.spacing(abs(float(value))))
        assert value == exact or (bits & 1 and abs(value - exact) < ulp)


def sums_with_tails(firsts):
    tails = [0, 2.0**-50, 2.0**-52, 2.0**-53, 2.0**-54, 1.5 * 2.0**-53, 2.0**-90]
    pairs = [(s * x, t * y) for x in firsts for y in tails for s in (1, -1) for t in (1, -1)]
    return np.array(pairs).T.copy()


@pytest.mark.parametrize("quiet", [QUIET, LOUD, BY_INTEGERS])
def test_two_limbs_are_rounded_once(quiet):
    """Middles of binary32 with tails that binary64 cannot hold beside them, of both signs."""
    if quiet == QUIET and not (HAS_QUIET_ADD and HAS_FMA):
        pytest.skip("the processor has no such addition")
    ulp = 2.0**-23
    x, y = sums_with_tails((0.0, 1.0, 1 + ulp / 2, 1 + 3 * ulp / 2, 2 - ulp / 2, 2 - ulp))
    rounded = on_floats(lambda u, v: as_bits(_rounded_once(u, v, quiet, HAS_FMA)), x, y)
    for u, v, bits in zip(x, y, rounded, strict=True):
        code, _ = round_exact(Fraction(u) + Fraction(v), BINARY32, RNE)
        assert Fraction(float(bits.view(np.float64))) == decode(code, BINARY32).value, (u, v)


#: This processor and the oldest; triples are kernels.
PROCESSORS = [
    (QUIET, True, HAS_ADDERS), (BY_INTEGERS, False, False), (QUIET, True, not HAS_ADDERS),
    (QUIET, False, False), (BY_INTEGERS, True, False),
]


@pytest.mark.parametrize(
    ("quiet", "has_fma", "has_adders"), pick(PROCESSORS[:2], PROCESSORS, PROCESSORS)
)
def test_calls_of_every_processor_give_the_same(quiet, has_fma, has_adders, monkeypatch):
    """All variants that processors choose, on sums of 97 digits and on exact ones."""
    if (quiet == QUIET and not (HAS_QUIET_ADD and HAS_FMA)) or (has_fma and not HAS_FMA):
        pytest.skip("the processor lacks the instructions")
    _task.cache_clear()

    def variant(*args, **choices):
        settled, constants = tile_variant(*args, **choices)
        return settled._replace(quiet=quiet, has_fma=has_fma, has_adders=has_adders), constants

    monkeypatch.setattr(engine, "tile_variant", variant)
    try:
        for window in (38, 12):
            a, b, c = at_the_edge(UNIT, 9, 17, 16, 0, top=6, window=window)
            check(run_exact, UNIT, a, b, c)
    finally:
        _task.cache_clear()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("tiny", [2.0**-20, 2.0**-24])
def test_the_least_product_decides_a_midpoint(sign, tiny):
    """2**24 + 1 is between two numbers; 2**-48 more or less needs 73 digits of the sum."""
    large = 2.0**12
    cases = [(1, 0, 0), (1, tiny, 2), (1, -tiny, 0), (3, 0, 4), (3, tiny, 4), (3, -tiny, 2)]
    for odd, t, above in cases:
        a = [[large, odd, 0.0, t]]
        b = [[sign * large], [sign], [sign], [sign * tiny]]
        values, _ = multiply(run_exact, job_of(UNIT, a, b))
        assert float(values[0, 0]) == sign * (2.0**24 + above), (odd, t)


def test_cancellation_leaves_the_least_product():
    """2**30 - 2**30 + 2**-48 in every order of the three, within a call and in the accumulator."""
    large, tiny = 2.0**15, 2.0**-24
    terms = np.float32([[large, large], [-large, large], [tiny, tiny]])
    for order in ([0, 1, 2], [0, 2, 1], [2, 0, 1]):
        x, y = terms[order].T
        values, _ = multiply(run_exact, job_of(UNIT, [x], y[:, None]))
        assert float(values[0, 0]) == 2.0**-48
    values, _ = multiply(run_exact, job_of(UNIT, [[tiny, -large]], [[tiny], [large]], 2.0**30))
    assert float(values[0, 0]) == 2.0**-48


@pytest.mark.parametrize("window", [24, 38])
@pytest.mark.parametrize("seed", range(2))
def test_digits_far_below_the_largest_are_summed(window, seed):
    """38 digits apart binary64 holds most sums of four terms; sums of calls it does not."""
    a, b, c = at_the_edge(UNIT, 9, 17, 16, seed, top=6, window=window)
    check(run_exact, UNIT, a, b, c)


@pytest.mark.parametrize("has_fma", [True, False])
def test_one_term_is_one_rounding_of_a_product_and_a_sum(has_fma, monkeypatch):
    """By the processor's fused multiply-add, and where it has none, in two limbs."""
    monkeypatch.setattr(engine, "HAS_FMA", has_fma and HAS_FMA)
    unit = replace(find_unit(UNIT), terms=1, calls=1)
    a, b, c = at_the_edge(unit, 9, 17, 5, 3, top=6, window=38)
    kinds = []
    monkeypatch.setattr(
        engine,
        "run_tiles",
        lambda job, task: kinds.append(task.variant.kind) or run_tiles(job, task),
    )
    check(run_exact, unit, a, b, c)
    assert kinds == [FUSED if has_fma and HAS_FMA else EXACT]


def test_a_short_tile_beside_a_long_one():
    """Rows of the first tile are short; those of the second one need two limbs."""
    a = np.ones((8, 4), np.float32)
    a[5] = [2.0**12, 1.0, 0.0, 2.0**-24]
    b = np.float32([[2.0**12], [1.0], [1.0], [2.0**-24]]).repeat(3, axis=1)
    check(run_exact, UNIT, a, b, 2.0**-20)


def test_zeros_of_both_signs_sum_to_plus_zero():
    values, _ = multiply(run_exact, job_of(UNIT, [[0.0, -1.0]], [[-1.0], [0.0]], -0.0))
    assert values.view(np.uint32).tolist() == [[0]]


def test_sums_that_two_limbs_do_not_hold_are_refused():
    assert not run_exact(job_of(UNIT, [[2.0**-24]], [[2.0**-24]], 2.0**60))
    assert run_exact(job_of(UNIT, [[2.0**-24]], [[2.0**-24]], 2.0**20))
    assert not run_exact(job_of("AMP_F32_F32", [[1.0]], [[1.0]]))
