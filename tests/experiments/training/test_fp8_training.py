"""Digits are learnt with FP8 operands (golden)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ipu.experiments.training import fp8_training
from tests.experiments.figures import assert_panels


@pytest.mark.tier("full")
def test_digits_are_learnt_in_quarters():
    result = fp8_training.run(quick=True, seed=0)
    losses = {row["policy"]: row["loss"] for row in result.select(part="loss")}
    assert abs(losses["FP8, loss × 256"] / losses["FP32"] - 1) < 0.05
    assert {unit.name for unit in result.units} > {"AMP_F8_F16"}


def test_a_small_run_has_its_losses_panels_and_table(monkeypatch):
    every = fp8_training.images()
    few = replace(every, learn=every.learn[:64], test=every.test[:300])
    monkeypatch.setattr(fp8_training, "images", lambda: few)
    result = fp8_training.run(quick=True, seed=0)
    for variant in fp8_training.VARIANTS[1:]:
        assert f"{variant.name}: cannot tell (1 of 5 pairs)" in result.answer
    assert_panels(fp8_training.plot(result), 2)
    (table,) = fp8_training.tables(result)
    assert len(table.heads) == 1 + len(fp8_training.VARIANTS)
