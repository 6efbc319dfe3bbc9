"""Variance far from zero needs stable statistics (golden)."""

from __future__ import annotations

import pytest

from ipu.experiments.training import (
    stable_statistics,
)
from tests.experiments.figures import assert_panels


@pytest.mark.source("S4-44")
def test_variance_far_from_zero_needs_stable_statistics():
    result = stable_statistics.run(quick=True, seed=0)
    assert stable_statistics.lost_from(result, "FP16", False) <= 32
    assert stable_statistics.lost_from(result, "FP32", False) > 100
    assert stable_statistics.lost_from(result, "FP16", True) is None
    assert_panels(stable_statistics.plot(result), 1)
