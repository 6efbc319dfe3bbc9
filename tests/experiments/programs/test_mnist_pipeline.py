"""The program mnist_pipeline: its options, the tutorial's command lines (golden)."""

from __future__ import annotations

import json
import re

import pytest

from ipu.experiments.programs import mnist_pipeline

pytest.importorskip("torch", reason="torch is not installed; run: make test-torch")

#: A few hundred images make one call of two updates.
SMALL = ("--limit", "320", "--batch-size", "16", "--device-iterations", "2", "--epochs", "1")


def run(capsys, *arguments):
    status = mnist_pipeline.main(arguments)
    return status, capsys.readouterr()


@pytest.mark.source("S2-39")
def test_the_help_has_the_tutorials_options_and_defaults(capsys):
    status, told = run(capsys, "-h")
    assert status == 0
    text = re.sub(r"\s+", " ", told.out)
    for name, default in (
        ("--batch-size", "40"), ("--device-iterations", "10"), ("--test-batch-size", "8"),
        ("--epochs", "3"), ("--learning-rate", "0.001"), ("--profile-dir", "profile"),
        ("--strategy", "pipelined"),
    ):
        assert re.search(rf"{name} .*?\[default: {default}", text), name
    for name in ("--profile", "--debug", "--offload-optimiser", "[pipelined|sharded]"):
        assert name in text


@pytest.mark.source("S2-40", "S2-41")
@pytest.mark.parametrize(
    "arguments",
    [
        ("--learning-rate", "0.002", "--debug", "--epochs", "2"),
        ("--profile", "--profile-dir", "pipeline_profile"),
        ("--strategy", "sharded", "--profile", "--profile-dir", "sharding_profile"),
        ("--offload-optimiser",),
    ],
)
def test_the_tutorials_command_lines_run(capsys, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    status, told = run(capsys, *SMALL, *arguments)
    assert status == 0, told.err
    epochs = 2 if "--epochs" in arguments else 1
    assert told.out.count("Epoch ") == epochs
    assert re.search(r"Accuracy on test set: [\d.]+%", told.out)
    assert re.search(r"Loss:[\d.]+ \| Accuracy:[\d.]+%", told.out)
    if "--profile" in arguments:
        folder = tmp_path / arguments[arguments.index("--profile-dir") + 1]
        names = {path.name for path in folder.iterdir()}
        assert names == {"schedule.json", "account.json", "trace.json", "profile.png"}
        account = json.loads((folder / "account.json").read_text())
        assert account["slots"] == (80 if "sharded" in arguments else 16)


def test_strategy_and_offload_change_no_number(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = []
    for more in ((), ("--strategy", "sharded", "--offload-optimiser")):
        _, told = run(capsys, *SMALL, "--test-batch-size", "30", *more)
        lines.append([line for line in told.out.splitlines() if "Accuracy" in line])
        assert "; of both the first 320\n" in told.out
    assert lines[0] == lines[1]
    assert lines[0][-1].endswith("% (of the first 300 of 320 images)")


def test_bad_input_is_one_sentence(capsys):
    status, told = run(capsys, "--limit", "100", "--epochs", "1")
    assert status == 2
    assert "fewer than the 4000 images of one call; use a smaller --batch-size" in told.err
    status, told = run(capsys, "--strategy", "phased")
    assert status == 2
    assert "'phased' is not one of" in told.err
