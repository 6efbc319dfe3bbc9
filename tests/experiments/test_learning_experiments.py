"""Experiments on updates, accumulators and totals find what is known (golden, law)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, Context
from ipu.experiments.lab.drawing import to_png
from ipu.experiments.sums import k_split
from ipu.experiments.training import (
    accumulation_dtype,
    fp8_training,
    loss_scaling_strategies,
    momentum_under_sr,
    parameter_update_methods,
    running_loss,
    stable_statistics,
)
from ipu.learn.accumulate import Reduction
from ipu.learn.loss_scale import DynamicLossScale


@pytest.mark.source("X-08")
@pytest.mark.parametrize(
    ("loss", "batches", "reported"),
    [(0.4, 1875, "0.458"), (0.3, 1875, "0.263"), (2.3, 1562, "2.104"), (0.9, 1562, "0.978")],
)
def test_totals_in_fp16_report_what_was_worked_out(loss, batches, reported):
    totals = running_loss._totals(Context(BINARY16), np.array([loss]), batches, "")
    assert f"{totals[-1, 0] / batches:.3f}" == reported
    # numpy's own binary16 additions, one by one
    total = np.float16(0)
    for _ in range(batches):
        total += np.float16(loss)
    assert totals[-1, 0] == total


def test_the_caption_of_running_loss_is_its_data_and_its_figure_is_drawn():
    result = running_loss.run(quick=True, seed=0)
    for row in result.select(part="case")[:2]:
        assert f"{row['reported']:.3f}" in result.answer
    assert to_png(running_loss.plot(result))


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


def test_reports_that_are_right_are_no_artefact():
    kinds = [("reported", name) for name in ("FP16", "FP16 + SR", "FP32")] + [("case", "")]
    rows = [
        {"part": part, "total": name, "loss": loss, "reported": loss}
        for part, name in kinds
        for loss in (0.3, 0.4)
    ]
    assert running_loss._answer(rows).startswith("No.")


def test_a_skipped_step_shows_no_zeros():
    scale = DynamicLossScale(2.0**40, interval=50)
    watched = loss_scaling_strategies.Watched(loss_scaling_strategies.Strategy(scale, True), 0)
    first = next(watched.steps(1, 0, ""))
    assert (first["skipped"], first["zeros"]) == (True, None)


def test_shares_of_small_gradients_underflow(accumulated):
    small = next(iter(accumulation_dtype.SIZES))
    errors = {row["way"]: row["error"] for row in accumulated.select(gradients=small, count=64)}
    assert errors["MEAN in FP16"] > 5 * errors["SUM in FP16"] > errors["SUM in FP32"]


def test_splitting_k_shortens_the_chain_of_half_partials():
    result = k_split.run(quick=True, seed=0)
    error = result.column("rms", partials="half partials")
    cycles = result.column("cycles", partials="half partials")
    assert error[0] > 2 * error[-1]
    assert cycles[0] > 10 * cycles.min()
    assert result.column("exchange_bytes", tiles=1).tolist() == [0, 0]
    assert k_split.plot(result)


@pytest.mark.source("S4-12")
@pytest.mark.tier("full")
def test_updates_to_nearest_are_lost_and_others_are_not():
    result = parameter_update_methods.run(quick=True, seed=0)
    _, plain, stochastic, mixed = (v.name for v in parameter_update_methods.VARIANTS)

    def share(name):
        return parameter_update_methods.gained(result, name, 1e-4).mean()

    assert share(plain) < 0.25
    assert abs(share(stochastic) - 1) < 0.1
    assert abs(share(mixed) - 1) < 0.01


@pytest.mark.source("S4-47")
@pytest.mark.tier("full")
def test_scatter_of_stochastic_rounding_shrinks_with_momentum():
    result = momentum_under_sr.run(quick=True, seed=0)
    (_, factor) = momentum_under_sr.ratios(result)[0]
    assert factor > 1
    assert momentum_under_sr.plot(result)


@pytest.mark.source("S4-44")
def test_variance_far_from_zero_needs_stable_statistics():
    result = stable_statistics.run(quick=True, seed=0)
    assert stable_statistics.lost_from(result, "FP16", False) <= 32
    assert stable_statistics.lost_from(result, "FP32", False) > 100
    assert stable_statistics.lost_from(result, "FP16", True) is None
    assert stable_statistics.plot(result)


@pytest.mark.tier("full")
def test_loss_scales_move_as_their_rules_say():
    result = loss_scaling_strategies.run(quick=True, seed=0)
    scales = {name: result.column("scale", strategy=name) for name in
              loss_scaling_strategies.STRATEGIES}  # fmt: skip
    assert set(scales["static 256"]) == {256.0}
    assert set(scales["none"]) == {1.0}
    steps = np.abs(np.diff(np.log2(scales["automatic (PopART)"])))
    assert set(steps) == {1.0}  # every step, up or down
    assert np.flatnonzero(np.diff(scales["automatic (Keras)"]))[:2].tolist() == [8, 17]
    zeros = {name: result.column("zeros", strategy=name, skipped=False).mean() for name in scales}
    assert zeros["none"] > 10 * zeros["static 256"]
    assert loss_scaling_strategies.plot(result)


@pytest.mark.tier("full")
def test_digits_are_learnt_in_quarters():
    result = fp8_training.run(quick=True, seed=0)
    losses = {row["policy"]: row["loss"] for row in result.select(part="loss")}
    assert abs(losses["FP8, loss × 256"] / losses["FP32"] - 1) < 0.05
    assert {unit.name for unit in result.units} > {"AMP_F8_F16"}
    assert fp8_training.plot(result)
