"""Digits training is reproducible, and its numbers agree with each other (law).

The quick run is short; what the full run gives is in its report.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from fpsim import get_threads, set_threads
from ipu.experiments.lab.catalogue import find
from ipu.experiments.training import digits, digits_training
from tests.experiments.figures import assert_panels
from tests.tiers import pick

RUN = """
from ipu.experiments.training.{name} import run
if __name__ == "__main__":
    print(run(quick=True, seed={seed}).to_csv())
"""


@pytest.fixture(scope="module")
def trained():
    # In the quick tier one epoch instead of two, and no processes.
    before = get_threads()
    set_threads(pick(1, before, before))
    yield digits_training.run(quick=True, seed=0, epochs=pick(1, 0, 0))
    set_threads(before)


def csv_elsewhere(tmp_path, name, seed, threads):
    """data.csv of a quick run in a process of its own."""
    script = tmp_path / "one_run.py"
    script.write_text(RUN.format(name=name, seed=seed))
    environment = os.environ | {"FPSIM_THREADS": str(threads), "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.removesuffix("\n")


@pytest.mark.tier("full")
def test_one_process_or_two_find_the_same_bytes(trained, tmp_path):
    for threads in (1, 2):
        assert csv_elsewhere(tmp_path, "digits_training", 0, threads) == trained.to_csv()


def test_all_policies_see_the_same_batches_and_start_alike(trained):
    first = [
        trained.column("loss", part="loss", epoch=1, seed=0, policy=v.name)
        for v in digits_training.VARIANTS
    ]
    assert all(len(losses) == 1 for losses in first)
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
    names = [v.name for v in digits_training.VARIANTS]
    names += [names[v] + digits_training.SUFFIX for v in digits_training.AT_USUAL]
    assert tested == {(name, seed) for name in names for seed in (0, 1)}


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


def rows_of(small, usual=None):
    """Test accuracies in per cent by policy, one for each seed, as the experiment's rows."""
    usual = usual or {"FP32": GOOD, "FP16": GOOD, "FP16 + SR": GOOD}
    tested = {v.name: small.get(v.name, small["FP32"]) for v in digits_training.VARIANTS}
    tested |= {name + digits_training.SUFFIX: values for name, values in usual.items()}
    rows = [
        {"part": "test", "policy": name, "seed": seed, "accuracy": value / 100}
        for name, values in tested.items() for seed, value in enumerate(values)
    ]
    rows += [
        {"part": "loss", "policy": row["policy"], "seed": row["seed"], "epoch": epoch,
         "loss": 3.0 / epoch}
        for row in rows for epoch in range(1, 11)
    ]
    return rows + [
        {"part": "updates", "policy": name, "layer": "hidden", "movement_lost": 0.5}
        for name in ("FP16", "FP16 + SR")
    ]


GOOD, BAD, HALF = (95, 96, 95, 94, 95), (70, 72, 71, 69, 70), (83, 84, 83, 82, 82)
CASES = {
    "nothing to rescue": (GOOD, GOOD, "At a usual rate there is nothing to rescue."),
    "rescued": (BAD, GOOD, "Yes. "),
    "not rescued": (BAD, BAD, "No. "),
    "half rescued": (BAD, HALF, "No. "),
    "seeds that differ": (BAD, (95, 60, 95, 94, 95), "Undecided by this run; "),
    "a gap that differs": ((95, 60, 95, 94, 95), GOOD, "Undecided by this run; "),
}


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_follows_from_the_rows(case):
    half, stochastic, opening = CASES[case]
    usual = {"FP32": GOOD, "FP16": half, "FP16 + SR": stochastic}
    assert digits_training._answer(rows_of({"FP32": GOOD}, usual)).startswith(opening)


def test_two_seeds_decide_nothing():
    usual = dict.fromkeys(("FP32", "FP16", "FP16 + SR"), (95, 96))
    answer = digits_training._answer(rows_of({"FP32": (95, 96)}, usual))
    assert answer.startswith("Undecided by this run; 5 pairs of runs would decide it.")


def test_an_underfit_reference_is_told():
    assert "At the small rate FP32 itself is underfit (82.8 ± 1.0 %)" in digits_training._answer(
        rows_of({"FP32": HALF}))
    assert "At the small rate FP32 itself learns" in digits_training._answer(
        rows_of({"FP32": GOOD}))


def test_every_panel_shows_data_and_the_table_every_layer(trained):
    assert_panels(digits_training.plot(trained), 3)
    (table,) = digits_training.tables(trained)
    assert len(table.heads) == 1 + len(digits_training.VARIANTS)
    assert any(line[0] == "hidden, update" for line in table.lines)


def test_rate_and_epochs_are_settings_of_a_sweep(monkeypatch):
    """They reach the optimiser and the number of epochs; wrong ones are refused."""
    assert find("digits_training").settings() == {"rate": float, "epochs": int}
    for wrong in ({"rate": 0.0}, {"epochs": -1}):
        with pytest.raises(ValueError, match=r"^rate=.*, epochs=.*: use a rate above 0"):
            digits_training.run(True, 0, **wrong)
    jobs = []
    monkeypatch.setattr(digits_training, "_train", jobs.append)
    monkeypatch.setattr(digits_training, "in_processes", lambda work, jobs, label: map(work, jobs))
    with pytest.raises(TypeError):  # the first training has left nothing
        digits_training.run(True, 3, rate=0.5, epochs=7)
    assert {job.rate for job in jobs} == {0.5}
    assert (jobs[-1].epochs, jobs[-1].seed, jobs[-1].steps) == (7, 3, None)
    optimizers = []
    monkeypatch.undo()
    monkeypatch.setattr(
        digits_training, "train", lambda variant, sgd, *rest, **more: optimizers.append(sgd)
    )
    with pytest.raises(TypeError):
        digits_training._train(jobs[-1])
    assert optimizers[0].rate == 0.5
