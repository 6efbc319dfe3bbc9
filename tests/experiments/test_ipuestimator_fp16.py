"""The launcher of the program ipuestimator_fp16, as a file and as a module."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ipu.experiments.lab.catalogue import catalogue

ROOT = Path(__file__).parents[2]
NAME = "ipuestimator_fp16"


@pytest.mark.parametrize(
    "launch", [[str(ROOT / "experiments" / f"{NAME}.py")], ["-m", f"ipu.experiments.{NAME}"]]
)
def test_the_program_is_launched_by_the_tutorial_s_name(launch):
    done = subprocess.run([sys.executable, *launch, "--help"], capture_output=True, text=True,
                          check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    assert f"Usage: {NAME} " in done.stdout


def test_it_is_no_experiment():
    assert NAME not in catalogue()
