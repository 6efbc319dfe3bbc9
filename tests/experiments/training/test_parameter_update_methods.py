"""Updates to nearest are lost, others are not (golden)."""

from __future__ import annotations

import pytest

from ipu.experiments.training import parameter_update_methods
from tests.experiments.figures import assert_panels


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


def test_a_small_run_has_its_shares_panels_and_sentence(few_digits):
    result = parameter_update_methods.run(quick=True, seed=0)
    variants = [v.name for v in parameter_update_methods.VARIANTS]
    assert [r["method"] for r in result.rows] == variants * 2
    gains = {r["method"]: r["gain"] for r in result.select(rate=1e-4)}
    for name, says in zip(variants[1:], ("and learn {:.0%} of what", "rounding learn {:.0%}",
                                         "compute {:.0%}"), strict=True):
        assert says.format(gains[name] / gains["FP32"]) in result.answer
    (lost,) = (r["lost"] for r in result.select(rate=1e-4, method=variants[1]))
    assert f"ignore {lost:.0%}" in result.answer
    assert_panels(parameter_update_methods.plot(result), 2)
