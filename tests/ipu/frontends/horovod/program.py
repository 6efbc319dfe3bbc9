"""Programs of Horovod in processes of their own: importing it starts MPI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ipu.frontends.popdist.launch import PoprunOptions

__all__ = ["alone", "by_poprun"]

ROOT = Path(__file__).parents[4]


def alone(code, begin="", **variables):
    """Run a program in one process without MPI, if `variables` say so: status, output, errors."""
    done = subprocess.run(
        [sys.executable, "-c", begin + code], capture_output=True, text=True, timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
    )
    return done.returncode, done.stdout, done.stderr


def by_poprun():
    """Variables of one process of poprun, which needs no MPI."""
    return PoprunOptions().environment | {"POPDIST_INSTANCE_INDEX": "0"}
