"""The launcher of the program mnist_pipeline, as a file and as a module."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ipu.experiments.lab.catalogue import catalogue

ROOT = Path(__file__).parents[2]
NAME = "mnist_pipeline"


@pytest.mark.parametrize(
    "launch", [[str(ROOT / "experiments" / f"{NAME}.py")], ["-m", f"ipu.experiments.{NAME}"]]
)
def test_the_program_is_launched_by_the_tutorial_s_name(launch):
    done = subprocess.run([sys.executable, *launch, "--help"], capture_output=True, text=True,
                          check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    assert f"Usage: {NAME} " in done.stdout


def test_an_experiment_of_the_same_name_is_another_module():
    assert catalogue()[NAME].room == "ipu.experiments.execution"
