"""Runs of listings through the launcher, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from ipu.experiments.listings.sources import DocumentListing
from tests.vectors import documents

ROOT = Path(__file__).parents[3]


def run(listing: DocumentListing, folder: Path, *, with_log: bool = False) -> str:
    """What a listing prints, and logs; it runs as `fpsim tf [--tf1] PROGRAM ARGUMENTS`."""
    program = listing.program(documents())
    if not find_spec("tensorflow"):
        pytest.skip("tensorflow is not installed")
    options = ["--tf1"] if listing.tf1 else []
    return run_text(
        program, folder, listing.name, *options, arguments=listing.arguments, with_log=with_log
    )


def run_text(
    program: str, folder: Path, name: str, *options: str, arguments: Sequence[str] = (),
    with_log: bool = False,
) -> str:
    """What a program prints, and logs; it runs as `fpsim tf OPTIONS PROGRAM ARGUMENTS`."""
    path = folder / f"{name}.py"
    path.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "ipu.experiments.cli", "tf", *options, str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=600, check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr if with_log else done.stdout
