"""Programs that mpirun starts, for tests; without MPI the importing test file is skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="mpi4py is not installed: the extra mpi brings it")

from ipu.frontends.popdist.launch import find_mpirun
from tests.ipu.members.processes import limit

__all__ = ["ROOT", "mpirun"]

try:
    MPIRUN = find_mpirun()
except ValueError:
    pytest.skip("mpirun is not installed: the extra mpi brings it", allow_module_level=True)

ROOT = Path(__file__).parents[3]

#: Each worker has one replica and joins the others as `transport`; `cluster` may be changed.
BEGIN = """
import os, sys
from dataclasses import replace
from ipu.members.cluster import Cluster
from ipu.members.mpi_transport import connect, mpi_world
from ipu.members.transport import JoinError, StoppedError
rank, size = mpi_world()
cluster = Cluster(rank, size, size, transport="mpi")
"""


def mpirun(count, code, *arguments, begin=BEGIN, **variables):
    """Run a program in so many processes: status, lines of both streams."""
    done = subprocess.run(
        [MPIRUN, "--oversubscribe", "--allow-run-as-root", "-np", str(count),
         sys.executable, "-c", begin + code, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True, text=True, timeout=limit(120),
    )
    return done.returncode, sorted(done.stdout.splitlines()), done.stderr
