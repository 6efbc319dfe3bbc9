"""Digits are learnt with FP8 operands (golden)."""

from __future__ import annotations

import pytest

from ipu.experiments.training import (
    fp8_training,
)


@pytest.mark.tier("full")
def test_digits_are_learnt_in_quarters():
    result = fp8_training.run(quick=True, seed=0)
    losses = {row["policy"]: row["loss"] for row in result.select(part="loss")}
    assert abs(losses["FP8, loss × 256"] / losses["FP32"] - 1) < 0.05
    assert {unit.name for unit in result.units} > {"AMP_F8_F16"}
    assert fp8_training.plot(result)
