"""Digits training is reproducible, and its numbers agree with each other (law).

The quick run is short; what the full run gives is in its report.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

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


def rows_of(single, half, stochastic):
    """Test accuracies in per cent, one for each seed, as the experiment's rows."""
    losses = {"FP32": single, "FP16": half, "FP16 + SR": stochastic}
    rows = [
        {"part": "test", "policy": v.name, "seed": seed, "accuracy": value / 100}
        for v in digits_training.VARIANTS
        for seed, value in enumerate(losses.get(v.name, single))
    ]
    return rows + [
        {"part": "updates", "policy": name, "layer": "hidden", "movement_lost": 0.5}
        for name in losses
    ]


CASES = {
    "rescued": ((95, 96, 95, 94, 95), (70, 72, 71, 69, 70), (95, 95, 95, 94, 94), "Yes. "),
    "not rescued": ((95, 96, 95, 94, 95), (70, 72, 71, 69, 70), (71, 72, 72, 70, 70), "No. "),
    "half rescued": ((95, 96, 95, 94, 95), (70, 72, 71, 69, 70), (83, 84, 83, 82, 82), "No. "),
    "a gap of four images": ((15.7, 22), (14.6, 21), (15.7, 22), "Undecided by this run; "),
    "nothing to rescue": ((95, 95, 94), (95, 94, 95), (95, 95, 95), "Undecided by this run; "),
    "seeds that differ": ((95, 60), (50, 59), (95, 60), "Undecided by this run; "),
}


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_follows_from_the_rows(case):
    *accuracies, opening = CASES[case]
    assert digits_training._answer(rows_of(*accuracies)).startswith(opening)


def test_the_sentence_is_computed_a_second_time(trained):
    """From the rows, with scipy's interval and Python's statistics; quick changes no rule."""
    points = {}
    for row in trained.rows:
        if row["part"] == "test":
            points.setdefault(row["policy"], []).append(100 * row["accuracy"])
    gaps = [a - b for a, b in zip(points["FP32"], points["FP16"], strict=True)]
    # Both seeds may differ by the same few images; those of 360 are no surer than a binomial draw.
    share = np.mean(points["FP32"]) / 100
    images = 100 * math.sqrt(2 * share * (1 - share) / 360 / len(gaps))
    width = max(stats.t.ppf(0.975, len(gaps) - 1) * stats.sem(gaps), 1.959964 * images)
    assert trained.answer.startswith("Undecided by this run") == (np.mean(gaps) <= width)
    for name in ("FP32", "FP16", "FP16 + SR", "mixed"):
        mean, sd = statistics.mean(points[name]), statistics.stdev(points[name])
        assert f"{mean:.1f} ± {sd:.1f} %" in trained.answer
    gained = statistics.mean(points["FP16 + SR"]) - statistics.mean(points["FP16"])
    assert f"({gained:+.1f} of {statistics.mean(gaps):.1f} points)" in trained.answer


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
