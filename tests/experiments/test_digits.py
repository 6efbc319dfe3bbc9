"""Digits training and the loss scale sweep: reproducible, and their figures' numbers hang together.

The quick runs are short; what the full runs find is in their reports.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from fpsim import BINARY16, round_to
from ipu.experiments.training import digits, digits_training, loss_scale_sweep

RUN = """
from ipu.experiments.training.{name} import run
if __name__ == "__main__":
    print(run(quick=True, seed={seed}).to_csv())
"""


@pytest.fixture(scope="module")
def trained():
    return digits_training.run(quick=True, seed=0)


@pytest.fixture(scope="module")
def swept():
    return loss_scale_sweep.run(quick=True, seed=0)


def csv_elsewhere(tmp_path, name, seed, threads):
    """data.csv of a quick run in a process of its own."""
    script = tmp_path / "one_run.py"
    script.write_text(RUN.format(name=name, seed=seed))
    environment = os.environ | {"FPSIM_THREADS": str(threads), "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.removesuffix("\n")


# Data -----------------------------------------------------------------------------------------


def test_the_images_are_exact_in_half():
    images = digits.load().images
    assert images.shape == (1797, 64)
    assert (round_to(images, BINARY16) == images).all()


def test_no_digit_is_learnt_from_and_tested_with():
    learn, test = digits.load().split(3)
    assert sorted([*learn, *test]) == list(range(1797))
    assert len(test) == digits.HELD_BACK


def test_batches_are_whole_disjoint_and_differ_by_epoch():
    learn, _ = digits.load().split(0)
    first, second = (np.concatenate(list(digits.batches(learn, 32, 0, e))) for e in (1, 2))
    assert len(set(first.tolist())) == len(first) == len(learn) // 32 * 32
    assert (first != second).any()


# Training -------------------------------------------------------------------------------------


def test_one_process_or_two_find_the_same_bytes(trained, tmp_path):
    for threads in (1, 2):
        assert csv_elsewhere(tmp_path, "digits_training", 0, threads) == trained.to_csv()


def test_all_policies_see_the_same_batches_and_start_alike(trained):
    first = trained.column("loss", part="loss", epoch=1, seed=0)
    assert len(first) == len(digits_training.VARIANTS)
    assert np.ptp(first) < 0.02


@pytest.mark.source("S4-12")
def test_nearest_rounding_swallows_movement_and_stochastic_rounding_does_not(trained):
    for layer in digits.LAYERS:
        lost = {
            name: trained.column("movement_lost", part="updates", policy=name, layer=layer).mean()
            for name in ("FP32", "FP16", "FP16 + SR", "mixed")
        }
        assert lost["FP16"] > 0.1
        assert max(abs(lost[name]) for name in lost if name != "FP16") < 0.02


def test_every_policy_and_seed_is_tested(trained):
    tested = {(r["policy"], r["seed"]) for r in trained.select(part="test")}
    assert tested == {(v.name, s) for v in digits_training.VARIANTS for s in (0, 1)}


def test_exceptions_are_told_by_layer(trained):
    rows = trained.select(part="exceptions", policy="FP16")
    assert {r["layer"] for r in rows} >= {"hidden", "output", "loss"}
    update = next(r for r in rows if (r["layer"], r["phase"]) == ("hidden", "update"))
    assert update["underflow"] > 0
    assert update["OFLO"] == update["INV"] == update["DIV0"] == 0


def test_the_report_names_units_and_their_evidence(trained):
    names = {unit.name: unit.evidence for unit in trained.units}
    assert {"AMP_F16_F32", "AMP_F32_F32"} <= names.keys()
    assert "p=f32,c=f16,part=f32" in trained.policy


# Sweep ----------------------------------------------------------------------------------------


def test_underflow_falls_and_overflow_grows_with_the_scale(swept):
    for tensor in loss_scale_sweep.TENSORS:
        where = {"part": "sweep", "state": "before training", "tensor": tensor}
        assert (np.diff(swept.column("underflow", **where)) <= 0).all()
        assert (np.diff(swept.column("overflow", **where)) >= 0).all()


@pytest.mark.source("S4-30")
def test_nothing_overflows_up_to_the_highest_scale_and_something_above(swept):
    for row in swept.select(part="limit"):
        rows = swept.select(part="sweep", state=row["state"])
        inside = [r["overflow"] for r in rows if 2.0 ** r["exponent"] <= row["highest"]]
        above = [r["overflow"] for r in rows if 2.0 ** r["exponent"] > row["highest"]]
        assert max(inside) == 0 < max(above)


@pytest.mark.source("S4-40")
def test_the_stop_shows_the_status_register(swept):
    for row in swept.select(part="limit"):
        assert row["dump"].startswith("$FP_STS")
        assert "OFLO 0x1" in row["dump"]
        assert "gradient" in row["stopped_by"]


@pytest.mark.parametrize("experiment", [digits_training, loss_scale_sweep])
def test_figures_are_drawn_from_the_rows(experiment, trained, swept):
    from ipu.experiments.lab.drawing import to_png

    result = trained if experiment is digits_training else swept
    assert to_png(experiment.plot(result)).startswith(b"\x89PNG")
