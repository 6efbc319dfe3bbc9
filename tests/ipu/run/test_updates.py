"""Updates that rounding swallows (golden, law)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, round_to
from ipu.run.exponents import count_exponents
from ipu.run.updates import Updates


def added(before, term):
    """before + term in binary16, to nearest."""
    return round_to(np.float64(before) + np.float64(term), BINARY16).astype(np.float32)


@pytest.mark.parametrize(
    ("term", "swallowed"),
    [(2.0**-12, 1), (2.0**-11, 1), (2.0**-11 * 1.01, 0), (-(2.0**-12), 1), (-(2.0**-11), 0),
     (0.0, 0), (1.0, 0)],
)
def test_half_an_ulp_decides(term, swallowed):
    before, step = np.float32([1.0]), np.float32([term])
    updates = Updates()
    updates.add("w", BINARY16, before, step, added(before, step))
    row = updates.summary()["w"]
    assert (row["nonzero"], row["swallowed"]) == (int(term != 0), swallowed)


def test_sizes_are_in_units_in_the_last_place():
    before = np.float32([1.0, 1.0, 4.0, 0.0, 2.0**-20])
    term = np.float32([2.0**-10, 2.0**-11, 2.0**-8, 2.0**-24, 2.0**-24])
    updates = Updates()
    updates.add("w", BINARY16, before, term, before)
    # An ulp of subnormal values and of zero is the smallest subnormal, 2**-24.
    assert updates.summary()["w"]["in_ulps"] == {-1: 1, 0: 4}


def test_updates_that_are_no_number_are_not_counted_as_zeros():
    """After a division of zero by zero all updates are NaN: none is swallowed, none is zero."""
    updates, nan = Updates(), np.float32([np.nan, np.nan, 0.0, 0.5])
    updates.add("w", BINARY16, np.float32([1, np.nan, 1, 1]), nan, nan)
    row = updates.summary()["w"]
    assert (row["nonzero"], row["swallowed"]) == (1, 0)
    (shown,) = updates.histograms()
    assert (shown.zeros, shown.nonfinite, shown.counts) == (1, 2, {-1: 1})


def test_layers_add_up_and_terms_broadcast():
    updates = Updates()
    for _ in range(2):
        updates.add("a", BINARY16, np.ones((2, 3), np.float32), np.float32(1e-5),
                    np.ones((2, 3), np.float32))
    updates.add("b", BINARY16, np.ones(1, np.float32), np.float32([np.inf]), np.ones(1, np.float32))
    summary = updates.summary()
    assert (summary["a"]["swallowed"], summary["a"]["share"]) == (12, 1.0)
    assert summary["b"]["in_ulps"] == {}
    assert {h.name: h.counts for h in updates.histograms()}["a"] == {-17: 12}


@pytest.mark.parametrize("verb", ["add", "addcmul", "addcdiv"])
@pytest.mark.parametrize("factor", [-1e-3, 1.0, 1e39])
@pytest.mark.parametrize("n", [1, 5, 2048, 2051, 50_000])
def test_a_term_made_of_operands_counts_as_it_is(verb, factor, n):
    rng = np.random.default_rng(n)
    before, x, y, after = rng.standard_normal((4, n)).astype(np.float32)
    x[::5], y[::7], after[::3] = 0, 0, before[::3]
    after[-1:] = np.nan
    with np.errstate(all="ignore"):
        combined = {"add": x, "addcmul": x * y, "addcdiv": x / y}[verb]
        term = combined * np.float32(factor)
    of_term, of_operands = Updates(), Updates()
    sizes = of_term.add("w", BINARY16, before, term, after)
    operands = (x,) if verb == "add" else (x, y)
    *moved, exponents = of_operands.move("w", BINARY16, before, verb, operands, factor, after)
    np.testing.assert_array_equal(moved, sizes)
    np.testing.assert_array_equal(sizes, (np.max(np.abs(term)), np.max(np.abs(before))))
    assert of_operands.summary() == of_term.summary()
    assert of_operands.histograms() == of_term.histograms()
    np.testing.assert_array_equal(exponents, count_exponents(after))


@pytest.mark.parametrize("seed", range(4))
def test_any_bits_are_counted_as_numpy_counts_them(seed):
    rng = np.random.default_rng(seed)
    before, term, after = (rng.integers(0, 1 << 32, 5000, np.uint32) for _ in range(3))
    after[:4000] = before[:4000]
    term[::7], before[::5], after[::5] = 0x80000000, 0, 0x80000000
    before, term, after = (x.view(np.float32) for x in (before, term, after))
    updates = Updates()
    updates.add("w", BINARY16, before, term, after)
    moves = (term != 0) & ~np.isnan(term)
    fields, of_before = (np.int64(x.view(np.uint32) >> 23 & 255) for x in (term, before))
    sizes = fields - np.maximum(of_before, BINARY16.emin + 127) + BINARY16.precision - 1
    sizes = np.clip(sizes[(fields > 0) & (fields < 255)], -40, 40)
    row = updates.summary()["w"]
    assert row["nonzero"] == moves.sum()
    assert row["swallowed"] == (moves & (before == after)).sum()
    assert row["in_ulps"] == {int(size): int((sizes == size).sum()) for size in sorted(set(sizes))}
