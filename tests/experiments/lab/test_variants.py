"""What a training leaves: exceptions by layer, updates without effect (golden)."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ipu.experiments.lab.variants import Variant, Watch, described, exceptions
from ipu.learn.loss_scale import StaticLossScale
from ipu.learn.policy import FP16, FP32


def array(*values):
    return SimpleNamespace(values=np.array(values))


def update(before, after, change, direction, layer="all_vars/hidden"):
    return SimpleNamespace(
        before=array(*before), after=array(*after), change=array(*change),
        direction=array(*direction), variable=SimpleNamespace(layer=layer),
    )


def test_updates_without_effect_and_lost_movement_are_shares():
    watch = Watch()
    # The first parameter stays although it should move by 1; the third has no gradient.
    watch(update((1.0, 4.0, 7.0), (1.0, 2.0, 7.0), (1.0, 2.0, 0.0), (1.0, 1.0, 0.0)))
    (row,) = watch.rows()
    assert row["layer"] == "hidden"
    assert row["without_effect"] == 0.5
    assert row["movement_lost"] == pytest.approx(1 - 4 / 5)
    assert watch.without_effect == 0.5


def test_exceptions_are_summed_by_layer_and_phase():
    counts = {("all_vars/hidden", "binary16"): {"results": 4, "UNDERFLOW": 1},
              ("all_vars/hidden", "binary32"): {"results": 2, "UNDERFLOW": 0},
              ("all_vars/hidden/gradient", "binary16"): {"results": 3, "OVERFLOW": 2},
              ("", "binary32"): {"results": 1}}
    counts = {key: {"OVERFLOW": 0, "INVALID": 0, "DIVBYZERO": 0, "UNDERFLOW": 0, **row}
              for key, row in counts.items()}
    rows = list(exceptions(SimpleNamespace(device=SimpleNamespace(counts=counts))))
    assert [(r["layer"], r["phase"], r["results"], r["underflow"], r["OFLO"]) for r in rows] == [
        ("hidden", "forward", 6, 1, 0), ("hidden", "gradient", 3, 0, 2),
        ("model", "forward", 1, 0, 0),
    ]


def test_variants_are_described_by_policy_rounding_and_scale():
    text = described([Variant("a", FP32), Variant("b", FP16, True, StaticLossScale(8.0))])
    assert text.startswith(f"a: {FP32},rounding=RNE,loss_scale=1; b: {FP16},rounding=SR")
    assert text.endswith("loss_scale=8")
