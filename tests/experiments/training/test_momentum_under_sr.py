"""Momentum shrinks the scatter of stochastic rounding (golden)."""

from __future__ import annotations

import pytest

from ipu.experiments.training import (
    momentum_under_sr,
)


@pytest.mark.source("S4-47")
@pytest.mark.tier("full")
def test_scatter_of_stochastic_rounding_shrinks_with_momentum():
    result = momentum_under_sr.run(quick=True, seed=0)
    (_, factor) = momentum_under_sr.ratios(result)[0]
    assert factor > 1
    assert momentum_under_sr.plot(result)
