"""How the programs of experiments/ are launched: as a file, and as a module."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

by_launch = pytest.mark.parametrize("launch", ["file", "module"])


def help_text(name: str, launch: str) -> str:
    """What a program prints for --help."""
    file = [str(ROOT / "experiments" / f"{name}.py")]
    arguments = file if launch == "file" else ["-m", f"ipu.experiments.{name}"]
    done = subprocess.run([sys.executable, *arguments, "--help"], capture_output=True, text=True,
                          check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    return done.stdout
