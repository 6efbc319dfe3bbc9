"""Updates to nearest are lost, others are not (golden)."""

from __future__ import annotations

import pytest

from ipu.experiments.training import (
    parameter_update_methods,
)


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
