"""Accumulators of gradients lose and saturate where they must (law)."""

from __future__ import annotations

import pytest

from ipu.experiments.lab.drawing import to_png
from ipu.experiments.training import (
    accumulation_dtype,
)
from ipu.learn.accumulate import Reduction


@pytest.fixture(scope="module")
def accumulated():
    return accumulation_dtype.run(quick=True, seed=0)


def test_the_errors_of_accumulation_are_drawn(accumulated):
    assert to_png(accumulation_dtype.plot(accumulated))


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
    assert "by 50.0% with SUM in FP16, where 25% of" in accumulation_dtype._answer(full)


def test_shares_of_small_gradients_underflow(accumulated):
    small = next(iter(accumulation_dtype.SIZES))
    errors = {row["way"]: row["error"] for row in accumulated.select(gradients=small, count=64)}
    assert errors["MEAN in FP16"] > 5 * errors["SUM in FP16"] > errors["SUM in FP32"]
