"""Loss scales move as their rules say (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.experiments.training import (
    loss_scaling_strategies,
)
from ipu.learn.loss_scale import DynamicLossScale


def test_a_skipped_step_shows_no_zeros():
    scale = DynamicLossScale(2.0**40, interval=50)
    watched = loss_scaling_strategies.Watched(loss_scaling_strategies.Strategy(scale, True), 0)
    first = next(watched.steps(1, 0, ""))
    assert (first["skipped"], first["zeros"]) == (True, None)


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
