"""The loop of tiles: edges, stretches, and guards that send a tile the long way (corners).

Every product is also run by the integer kernel (differential), which has no tiles and no guards.
"""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.judge.oracle import product_word
from fpsim.judge.oracle.rounding import encode
from fpsim.judge.oracle.units import Ask, one_output
from fpsim.kernels.by_unit.tiles import STEPS, STRETCH
from fpsim.products.by_unit.exact import run_exact
from fpsim.products.by_unit.fused import run_fused
from fpsim.products.by_unit.general import run_general
from fpsim.products.by_unit.window import run_window
from fpsim.records.units import find_unit
from tests.fpsim.in_partials import matmul
from tests.fpsim.kernels.by_unit.by_engine import job_of, multiply

#: One of each kind: 32 and 64 bits, with stores and without, guarded and not.
ENGINES = {
    "V100_F16_F32": run_window, "V100_F16_F16": run_window, "AMP_F16_F32": run_window,
    "AMP_F16_F16": run_window, "AMP_F16_F32.exact": run_exact, "AMP_F32_F32": run_fused,
}


def same(unit, a, b, start=0.0):
    """Codes and flags by the fast engine and by the general one."""
    values, flags = multiply(ENGINES[unit], job_of(unit, a, b, start))
    expected, expected_flags = multiply(run_general, job_of(unit, a, b, start))
    assert np.array_equal(values.view(np.uint32), expected.view(np.uint32))
    assert np.array_equal(flags, expected_flags)
    return values, flags


def numbers(fmt, shape, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 4, shape)
    return fp.Context(fmt).array(x).values


@pytest.mark.parametrize("unit", ENGINES)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (4, 16), (5, 17), (9, 33), (3, 15), (8, 31)])
def test_tiles_at_the_edges_of_the_result(unit, m, n):
    inputs, partials = find_unit(unit).inputs[0], find_unit(unit).partials
    a, b = numbers(inputs, (m, 35), m), numbers(inputs, (35, n), m)
    c = numbers(partials, (m, n), m)
    same(unit, a, b, c)


@pytest.mark.parametrize("unit", ["V100_F16_F32", "AMP_F16_F16", "AMP_F16_F32.exact"])
@pytest.mark.parametrize("k", [STRETCH - 1, STRETCH + 1, STEPS, STEPS + 5, 2 * STEPS + 3])
def test_stretches_and_chunks_go_on_where_the_last_one_ended(unit, k):
    fmt = find_unit(unit).inputs[0]
    same(unit, numbers(fmt, (2, k), 1), numbers(fmt, (k, 2), 2))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("at", [0, 15, 16, STRETCH, STEPS + 1])
@pytest.mark.parametrize("unit", ["AMP_F16_F16", "V100_F16_F16"])
def test_a_partial_that_overflows_on_the_way_is_not_lost(unit, at, sign):
    """Two terms of 200 * 200 overflow binary16 in pass `at`; the others are ones."""
    k = STEPS + 32
    a, b = np.ones((9, k), np.float32), np.ones((k, 3), np.float32)
    a[5, at : at + 2], b[at : at + 2, 1] = 200.0 * sign, 200.0
    values, flags = same(unit, a, b)
    assert values[5, 1] == sign * np.inf
    assert np.argwhere(flags).tolist() == [[5, 1]]


@pytest.mark.parametrize("unit", ["AMP_F16_F16", "V100_F16_F16"])
@pytest.mark.parametrize("start", [65504.0, -65504.0])
def test_a_partial_next_to_overflow_returns(unit, start):
    """The largest binary16 number plus 15 is rounded back to it, plus 16 is infinite."""
    a, b = np.ones((1, 16), np.float32), np.full((16, 2), np.sign(start), np.float32)
    b[15, 0] = 0.0
    values, flags = same(unit, a, b, start)
    if unit == "AMP_F16_F16":
        assert values.tolist() == [[start, np.sign(start) * np.inf]]
        assert flags.tolist() == [[0, 4]]


def test_after_failures_the_short_way_is_tried_again():
    """Many inexact tiles in a row, then exact ones: right in each, whichever way they go."""
    large = 2.0**12
    a = np.zeros((160, 4), np.float32)
    a[:80] = [large, 1.0, 0.0, 2.0**-24]
    a[:80:3, 3] *= -1
    a[80:] = numbers(fp.BINARY16, (80, 4), 1)
    b = np.float32([[large], [1.0], [1.0], [2.0**-24]])
    values, _ = same("AMP_F16_F32.exact", a, b)
    assert set(values[:80:3].ravel()) == {2.0**24}
    assert set(values[1:80:3].ravel()) == {2.0**24 + 2}


def test_the_flags_of_other_outputs_stay():
    job = job_of("AMP_F16_F16", np.ones((5, 4)), np.ones((4, 17)))
    job.element_flags[2, 3] = 16
    _, flags = multiply(run_window, job)
    assert np.argwhere(flags).tolist() == [[2, 3]]
    assert flags[2, 3] == 16


@pytest.mark.parametrize(("m", "k", "n"), [(1, 16, 1), (5, 150, 18)])
def test_stores_take_the_random_words_of_their_place_and_output(m, k, n):
    """Ten passes need words of two counters; a tile of four rows begins at its own number."""
    unit = find_unit("AMP_F16_F16")
    context = fp.Context(fp.BINARY16, rounding=fp.SR(11), seed=3)
    half = fp.Context(fp.BINARY16)
    a, b = half.array(numbers(fp.BINARY16, (m, k), 3)), half.array(numbers(fp.BINARY16, (k, n), 4))
    codes = matmul(a, b, unit, context=context).codes()
    ask = Ask(unit, fp.BINARY16, fp.BINARY16, context.core.settings)
    x, y = a.codes().tolist(), b.codes().T.tolist()
    for i, j in [(0, 0), (m - 1, n - 1), (m - 1, 0), (m // 2, n // 2), (0, n - 1)]:
        datum, _ = one_output(
            ask, x[i], y[j], 0, lambda s, out=i * n + j: product_word(3, 0, out, s, 11)
        )
        assert int(codes[i, j]) == encode(datum.sign, datum.magnitude, fp.BINARY16), (i, j)
