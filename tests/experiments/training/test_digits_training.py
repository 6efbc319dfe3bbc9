"""Digits training is reproducible, and its numbers agree with each other (law).

The quick run is short; what the full run gives is in its report.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from ipu.experiments.lab.drawing import to_png
from ipu.experiments.training import digits, digits_training

RUN = """
from ipu.experiments.training.{name} import run
if __name__ == "__main__":
    print(run(quick=True, seed={seed}).to_csv())
"""


@pytest.fixture(scope="module")
def trained():
    return digits_training.run(quick=True, seed=0)


def csv_elsewhere(tmp_path, name, seed, threads):
    """data.csv of a quick run in a process of its own."""
    script = tmp_path / "one_run.py"
    script.write_text(RUN.format(name=name, seed=seed))
    environment = os.environ | {"FPSIM_THREADS": str(threads), "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.removesuffix("\n")


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


def test_the_figure_is_drawn_from_the_rows(trained):
    assert to_png(digits_training.plot(trained)).startswith(b"\x89PNG")
