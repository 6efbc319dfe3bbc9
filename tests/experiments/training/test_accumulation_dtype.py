"""Accumulators of gradients lose and saturate where they must (law)."""

from __future__ import annotations

import pytest

from ipu.experiments.training import (
    accumulation_dtype,
)
from ipu.learn.accumulate import Reduction
from tests.experiments.figures import assert_panels


@pytest.fixture(scope="module")
def accumulated():
    return accumulation_dtype.run(quick=True, seed=0)


def test_the_errors_of_accumulation_are_drawn(accumulated):
    assert_panels(accumulation_dtype.plot(accumulated), 2)


def test_one_mini_batch_is_its_own_mean(accumulated):
    """Only the cast into the gradient's format could round, and there is none."""
    assert (accumulated.column("error", count=1) == 0).all()


def test_sums_of_large_gradients_saturate_in_fp16_alone():
    way, wide = accumulation_dtype.WAYS["SUM in FP16"], accumulation_dtype.WAYS["SUM in FP32"]
    error, saturated = accumulation_dtype._accumulate(way, 30.0, 4096, 20, 0)
    assert saturated > 0.9  # noise takes some back from the limit
    assert error > 0.4
    error, saturated = accumulation_dtype._accumulate(wide, 30.0, 4096, 20, 0)
    assert (saturated, wide.reduction) == (0.0, Reduction.SUM)
    assert error < 1e-5


def test_the_caption_says_how_many_sums_saturated(accumulated):
    assert (accumulated.column("saturated") == 0).all()
    assert "where 0% of the sums end at the largest value" in accumulated.answer
    full = [{**row, "saturated": 0.25, "error": 0.5} for row in accumulated.rows]
    answer = accumulation_dtype._answer(full)
    assert "where 25% of the sums end" in answer
    assert "Over 64 small ones SUM in FP16 is off by 50.0%" in answer


def test_the_sentence_says_from_which_count_on(accumulated):
    for kind in accumulation_dtype.SIZES:
        rows = accumulated.select(way="MEAN in FP16", gradients=kind)
        first = min((r["count"] for r in rows if r["error"] > 0.01), default=None)
        assert accumulation_dtype.needed_from(accumulated, "MEAN in FP16", kind) == first
    rows = accumulated.select(way="SUM in FP16", gradients=next(iter(accumulation_dtype.SIZES)))
    assert max(row["error"] for row in rows) < 0.01
    assert "SUM in FP16 is worse nowhere up to G = 64 with small" in accumulated.answer


def test_shares_of_small_gradients_underflow(accumulated):
    small = next(iter(accumulation_dtype.SIZES))
    errors = {row["way"]: row["error"] for row in accumulated.select(gradients=small, count=64)}
    assert errors["MEAN in FP16"] > 5 * errors["SUM in FP16"] > errors["SUM in FP32"]
