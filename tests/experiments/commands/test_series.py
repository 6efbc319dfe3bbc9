"""Series of experiments: failures, interruptions, going on, several at a time (law)."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace

import pytest

from ipu.experiments.cli import main
from ipu.experiments.commands import series
from ipu.experiments.commands.series import run_series
from ipu.experiments.lab import runner, store
from ipu.experiments.lab.catalogue import find
from tests.experiments.conftest import listed
from tests.tiers import pick


def test_a_failing_experiment_leaves_the_others_and_status_one(out, monkeypatch, capsys):
    monkeypatch.setenv("DICE", "fail")
    assert main(["run", "dice", "--out", str(out)]) == 1
    error = capsys.readouterr().err
    assert "RuntimeError: the die rolled off the table" in error
    assert "failed: dice" in error
    assert store.load(out / "dice") is not None
    assert not (out / series.UNFINISHED).exists()


def test_an_interruption_keeps_what_was_there_and_claims_nothing(out, monkeypatch, capsys):
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    monkeypatch.setenv("DICE", "break")
    assert main(["run", "dice", "--out", str(out), "--seed", "4"]) == 130
    assert {p: p.read_bytes() for p in before} == before
    assert capsys.readouterr().err.endswith("fpsim: interrupted; no experiment had finished\n")


QUICK = ("run", "coin", "dice", "--quick")


@pytest.fixture
def games(tmp_path_factory):
    """The catalogue holds two experiments more."""
    with listed(tmp_path_factory.mktemp("more"), "coin", "dice"):
        yield


@pytest.fixture
def interrupted(tmp_path, games, monkeypatch, capsys):
    """A series whose second experiment is interrupted."""
    monkeypatch.setenv("DICE", "break")
    assert main([*QUICK, "--out", str(tmp_path)]) == 130
    assert "interrupted; coin had finished, in " in capsys.readouterr().err
    monkeypatch.delenv("DICE")
    return tmp_path


def test_the_same_series_goes_on_with_what_was_left(interrupted, capsys):
    first = (interrupted / "coin" / "meta.json").read_bytes()
    assert main([*QUICK, "--out", str(interrupted)]) == 0
    assert "kept from the interrupted run: coin\n[2/2] dice: " in capsys.readouterr().out
    assert (interrupted / "coin" / "meta.json").read_bytes() == first
    assert store.load(interrupted / "dice") is not None
    assert not (interrupted / series.UNFINISHED).exists()
    assert main([*QUICK, "--out", str(interrupted)]) == 0
    assert "kept" not in capsys.readouterr().out  # that one had ended


#: What a kept result must agree in; the quick tier has the arguments, and a file that is not read.
CHANGES = pick(["--seed 1", "damaged"], *[["--seed 1", "other sources", "damaged", "older"]] * 2)


@pytest.mark.parametrize("change", CHANGES)
def test_another_series_starts_anew(change, interrupted, capsys, monkeypatch):
    arguments = change.split() if change.startswith("--") else []
    if change == "other sources":
        monkeypatch.setattr(series, "sources", lambda: "0")
    if change == "damaged":
        (interrupted / "coin" / "meta.json").write_text("{")
    if change == "older":
        file = interrupted / "coin" / "meta.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"date": "2000-01-01"}))
    assert main([*QUICK, *arguments, "--out", str(interrupted)]) == 0
    assert "kept" not in capsys.readouterr().out


def test_a_run_that_was_interrupted_while_drawing_is_drawn(interrupted, capsys):
    (interrupted / "coin" / store.FIGURE).unlink()
    assert main([*QUICK, "--out", str(interrupted)]) == 0
    assert "kept from the interrupted run: coin" in capsys.readouterr().out
    assert (interrupted / "coin" / store.FIGURE).exists()


def test_any_number_of_jobs_gives_the_same_bytes(tmp_path):
    names, files = ("swamping", "k_split"), ("data.csv", "figure.png")
    compared = pick(names[:1], names, names)  # the other is there for the second process
    contents = set()
    for jobs, run in (("1", compared), ("2", names)):
        out = tmp_path / jobs
        assert main(["run", *run, "--quick", "--jobs", jobs, "--out", str(out)]) == 0
        contents.add(tuple((out / n / f).read_bytes() for n in compared for f in files))
    assert len(contents) == 1


def test_an_error_in_another_process_is_told(tmp_path):
    names = ("none", pick("nor this", *["swamping"] * 2))
    jobs = [series.SeriesItem(name, tmp_path, True, 0) for name in names]
    done = dict(series.as_finished(series._one, jobs, 2, "two"))
    assert "experiment='none' is not known" in done[jobs[0]].error
    if names[1] == "swamping":
        assert done[jobs[1]].answer.startswith("Beside 0.25")
    else:
        assert "experiment='nor this' is not known" in done[jobs[1]].error


def test_times_compare_as_text():
    assert runner.now() < runner.now()


def test_an_experiment_whose_package_is_missing_is_skipped_with_the_reason(
    dice, out, monkeypatch, capsys
):
    absent = replace(find("dice"), needs="no_such_package")
    assert run_series([absent, find("dice")], out, quick=True, seed=0) == 0
    captured = capsys.readouterr()
    assert "skipped: dice needs no_such_package, which is not installed" in captured.err
    assert "[1/1] dice" in captured.out


def full(path, content):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_a_result_that_the_disk_does_not_take_is_printed(out, monkeypatch, capsys):
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    monkeypatch.setattr(store, "write_whole", full)
    assert main(["run", "dice", "--quick", "--seed", "4", "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert "It shows" in printed.out
    assert "roll,shown,share\n0," in printed.out
    assert printed.err == (
        f"fpsim: dice: not saved: {out / 'dice' / 'data.csv'}: No space left on device; "
        "make room, or name another folder\n"
    )
    tables = {p: p.read_bytes() for p in before if p.parent.name == "dice" and p.suffix == ".csv"}
    assert tables.items() <= before.items()


def test_a_full_disk_costs_the_older_result_nothing(out, monkeypatch, capsys):
    before = {p: p.read_bytes() for p in (out / "dice").iterdir()}
    calls = iter([None])

    def room(folder, size):
        if next(calls, "full") == "full":
            full(folder, b"")

    monkeypatch.setattr(store, "check_room", room)
    assert main(["run", "dice", "--quick", "--seed", "4", "--out", str(out)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in (out / "dice").iterdir()} == before


@pytest.mark.parametrize("module", ["series.write_report", "series.write_whole"])
def test_a_page_that_the_disk_does_not_take_costs_one_line(out, monkeypatch, capsys, module):
    monkeypatch.setattr(f"ipu.experiments.commands.{module}", lambda *_: full(out / "x", b""))
    assert main(["run", "dice", "--quick", "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"fpsim: {out / 'x'}: No space left on device; make room, or name another folder"
    )


@pytest.mark.parametrize("damage", ["cut", "labels", "packed"])
def test_a_damaged_data_set_is_one_line(tmp_path, monkeypatch, capsys, damage):
    folder = tmp_path / "mnist"
    folder.mkdir()
    sizes = {"train": 4, "t10k": 3}
    for stem, n in sizes.items():
        head = bytes((0, 0, 8, 3)) + b"".join(k.to_bytes(4, "big") for k in (n, 28, 28))
        images = folder / f"{stem}-images-idx3-ubyte"
        images.write_bytes(head + bytes(28 * 28 * n))
        label = 11 if damage == "labels" else 1
        labels = bytes((0, 0, 8, 1)) + n.to_bytes(4, "big") + bytes([label] * n)
        (folder / f"{stem}-labels-idx1-ubyte").write_bytes(labels)
        if damage == "cut":
            images.write_bytes(images.read_bytes()[:-1])
        if damage == "packed":
            images.rename(images.with_suffix(".gz")).write_bytes(b"\x1f\x8bnonsense")
    monkeypatch.setenv("FPSIM_DATA", str(tmp_path))
    assert main(["run", "mnist_training", "--quick", "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fpsim: mnist_training: {folder}/t")
    assert ("is mislabelled" if damage == "labels" else "is c") in line
