"""Running, storing and reporting, seen from the command line, with a tiny experiment."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from ipu.experiments.cli import main
from ipu.experiments.lab import store
from ipu.experiments.lab.catalogue import find

FILES = ["data.csv", "figure.png", "meta.json"]


@pytest.fixture
def out(tmp_path, dice):
    assert main(["run", dice, "--out", str(tmp_path), "--seed", "3"]) == 0
    return tmp_path


def test_a_run_leaves_data_description_figure_and_report(out):
    assert sorted(p.name for p in (out / "dice").iterdir()) == FILES
    assert sorted(p.name for p in out.iterdir()) == ["dice", "index.html", "index.md"]
    meta = json.loads((out / "dice" / "meta.json").read_text())
    data = (out / "dice" / "data.csv").read_bytes()
    assert meta["seed"] == 3
    assert meta["policy"] == "p=fair"
    assert meta["units"] == [{"name": "die", "evidence": "ASSUMED", "source": "a game"}]
    assert meta["data_sha256"] == hashlib.sha256(data).hexdigest()
    assert {"fpsim", "numpy", "Python"} <= meta["versions"].keys()
    assert meta["wall_seconds"] >= 0


def test_the_page_needs_no_other_file_and_tells_all(out):
    page = (out / "index.html").read_text()
    assert re.findall(r"<(?:script|link|iframe)|@import|url\(", page) == []
    assert all(source.startswith("data:") for source in re.findall(r'src="([^"]*)', page))
    meta = json.loads((out / "dice" / "meta.json").read_text())
    for part in (meta["question"], meta["answer"], "p=fair", "ASSUMED", "a game", "data:image/png"):
        assert part in page
        assert part in (out / "index.md").read_text() or part.startswith("data:")


def test_text_of_results_cannot_become_markup(out):
    folder = out / "dice"
    result, meta = store.load(folder)
    sly = type(result)(result.rows, "<b>bold</b>", result.policy, {}, result.units)
    store.save_data(folder, sly, meta)
    from ipu.experiments.lab.report import write_report

    assert "<b>bold" not in write_report(out).read_text()


def test_a_stored_result_is_the_one_that_ran_and_draws_the_same_figure(out):
    from ipu.experiments.lab.drawing import to_png

    result, meta = store.load(out / "dice")
    fresh = find("dice").run(quick=False, seed=3)
    assert (result.to_csv(), result.answer) == (fresh.to_csv(), meta["answer"])
    stored_figure = (out / "dice" / "figure.png").read_bytes()
    assert to_png(find("dice").plot(result)) == stored_figure


def test_interruption_keeps_what_had_finished(out, monkeypatch, capsys):
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    monkeypatch.setenv("DICE", "break")
    assert main(["run", "dice", "--out", str(out), "--seed", "4"]) == 130
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before
    assert "interrupted" in capsys.readouterr().err


def test_an_interruption_between_data_and_description_is_seen(out):
    (out / "dice" / "data.csv").write_text("roll\n1\n")
    assert store.load(out / "dice") is None


def test_a_failing_experiment_leaves_the_others_and_status_one(out, monkeypatch, capsys):
    monkeypatch.setenv("DICE", "fail")
    assert main(["run", "dice", "--out", str(out)]) == 1
    assert "failed: dice" in capsys.readouterr().err
    assert store.load(out / "dice") is not None
