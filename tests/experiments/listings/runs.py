"""Runs of listings through the launcher, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ipu.experiments.listings.sources import Listing

ROOT = Path(__file__).parents[3]


def sources() -> Path:
    """The folder of the documents; the test is skipped where it is not named."""
    folder = os.environ.get("FPSIM_SOURCES")
    if not folder:
        pytest.skip("FPSIM_SOURCES names no folder with the documents")
    return Path(folder)


def run(listing: Listing, folder: Path, *, with_log: bool = False) -> str:
    """What a listing prints, and logs; it runs as `fpsim tf [--tf1] PROGRAM ARGUMENTS`."""
    program = listing.program(sources())
    if not find_spec("tensorflow"):
        pytest.skip("tensorflow is not installed")
    path = folder / f"{listing.name}.py"
    path.write_text(program, encoding="utf-8")
    options = ["--tf1"] if listing.tf1 else []
    command = [sys.executable, "-m", "ipu.experiments.cli", "tf", *options, str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [*command, *listing.arguments], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr if with_log else done.stdout
