"""The program ipuestimator_fp16: what it prints, when it stops (golden)."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec

import pytest

from ipu.experiments.programs.ipuestimator_fp16 import main

NEEDS = pytest.mark.skipif(
    find_spec("tensorflow") is None or sys.version_info >= (3, 14),
    reason="tensorflow is not installed; run: make test-tensorflow",
)
def units_used():
    """Matrix units of the latest machine."""
    from ipu.frontends.tensorflow.engine.current import current

    return set(current().device.units_used)


SMALL = ("--limit", "64", "--batch-size", "16", "--epochs", "2", "--no-warm-up")


@pytest.mark.source("S4-06")
@NEEDS
@pytest.mark.source("S4-54")
@pytest.mark.parametrize("precision", ["mixed", "float32"])
def test_epochs_lower_the_loss_and_a_checkpoint_goes_on(precision, capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("FPSIM_DATA", raising=False)
    folder = ("--checkpoint", str(tmp_path))
    assert main([precision, *SMALL, *folder]) == 0
    printed = capsys.readouterr().out
    losses = [float(x) for x in re.findall(r"^epoch \d: loss ([\d.]+)$", printed, re.MULTILINE)]
    assert len(losses) == 2
    assert losses[1] < losses[0]
    assert {unit.endswith("F16_F32") for unit in units_used()} == {precision == "mixed"}
    assert printed.endswith("Program ran successfully\n")
    assert main([precision, *SMALL, *folder, "--epochs", "3"]) == 0
    resumed = re.findall(r"^epoch (\d)", capsys.readouterr().out, re.MULTILINE)
    assert resumed == ["3"]


@NEEDS
@pytest.mark.source("S4-39")
def test_a_scale_that_overflows_stops_the_machine(capsys, monkeypatch):
    monkeypatch.delenv("FPSIM_DATA", raising=False)
    assert main(["mixed", *SMALL, "--loss-scaling-factor", "1e9"]) == 1
    printed = capsys.readouterr().out
    assert "stopped by an exception" in printed
    assert "OFLO 0x1" in printed


def test_the_precisions_are_two(capsys):
    assert main(["float16"]) == 2
    assert "'float16' is not one of 'mixed', 'float32'" in capsys.readouterr().err
