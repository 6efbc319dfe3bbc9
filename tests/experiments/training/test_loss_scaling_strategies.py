"""Loss scales move as their rules say (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.experiments.training import loss_scaling_strategies
from ipu.learn.loss_scale import DynamicLossScale
from tests.experiments.figures import assert_panels


def test_a_skipped_step_shows_no_zeros():
    scale = DynamicLossScale(2.0**40, interval=50)
    strategy = loss_scaling_strategies.ScalingStrategy(scale, True)
    watched = loss_scaling_strategies.Watched(strategy, 0)
    first = next(watched.steps(1, 0, ""))
    assert (first["skipped"], first["zeros"]) == (True, None)


@pytest.mark.tier("full")
def test_loss_scales_move_as_their_rules_say():
    result = loss_scaling_strategies.run(quick=True, seed=0)
    scales = {name: result.column("scale", strategy=name) for name in
              loss_scaling_strategies.STRATEGIES}
    assert set(scales["static 256"]) == {256.0}
    assert set(scales["none"]) == {1.0}
    steps = np.abs(np.diff(np.log2(scales["automatic (PopART)"])))
    assert set(steps) == {1.0}  # every step, up or down
    assert np.flatnonzero(np.diff(scales["automatic (Keras)"]))[:2].tolist() == [8, 17]
    zeros = {name: result.column("zeros", strategy=name, skipped=False).mean() for name in scales}
    assert zeros["none"] > 10 * zeros["static 256"]


def test_a_small_run_has_its_outcomes_panels_and_sentence(few_digits):
    result = loss_scaling_strategies.run(quick=True, seed=0)
    for name in loss_scaling_strategies.STRATEGIES:
        rows = result.select(strategy=name)
        assert [row["step"] for row in rows] == list(range(1, few_digits + 1))
        scales = sorted(row["scale"] for row in rows)
        outcome = loss_scaling_strategies.outcome(result, name)
        assert outcome.scale == scales[len(scales) // 2]
        assert outcome.overflowed == sum(row["overflow"] for row in rows)
        assert outcome.skipped == sum(row["skipped"] for row in rows)
        if name not in ("none", "static 256"):
            assert f"{name} ends at {outcome.scale:g} and pays with" in result.answer
    assert_panels(loss_scaling_strategies.plot(result), 2)
