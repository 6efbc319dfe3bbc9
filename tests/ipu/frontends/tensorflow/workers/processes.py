"""Workers of a TensorFlow program as real processes: ports of the system, nobody left over."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[5]
LINE = Path(__file__).with_name("line_program.py")
OVERLAP = Path(__file__).with_name("overlap_program.py")
#: Seconds in which a worker starts, trains and ends on a busy machine: a limit, not a wait.
LIMIT = 900

__all__ = ["LIMIT", "LINE", "OVERLAP", "environment", "mpirun", "tf_configs", "workers"]


def environment(**others):
    """Variables of a worker: nothing of another run."""
    variables = {k: v for k, v in os.environ.items()
            if not k.startswith(("FPSIM_T", "FPSIM_W", "POPDIST_", "TF_CONFIG"))}
    return variables | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"} | others


def tf_configs(n):
    """TF_CONFIG of each of n workers, on ports that nobody uses."""
    if not find_spec("grpc_tools"):
        pytest.skip("grpcio is not installed; the extra grpc brings it")
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        addresses = [f"localhost:{listener.getsockname()[1]}" for listener in sockets]
    return [
        json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}})
        for i in range(n)
    ]


def command(program, *arguments, tf1=False):
    """The launcher of a program."""
    options = ["--tf1"] if tf1 else []
    return [sys.executable, "-m", "ipu.experiments.cli", "tf", *options, str(program), *arguments]


@contextmanager
def workers(configs, *lines):
    """A process for each TF_CONFIG; whoever is still there at the end is killed."""
    started = [
        subprocess.Popen(line, env=environment(TF_CONFIG=config), text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for config, line in zip(configs, lines, strict=True)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def ended(process, seconds=LIMIT):
    """Status, output and errors of a process, which has to end."""
    output, errors = process.communicate(timeout=seconds)
    return process.returncode, output, errors


def mpirun(n, line):
    """What n processes of mpirun print."""
    launcher = shutil.which("mpirun") or shutil.which("mpirun", path=Path(sys.executable).parent)
    if launcher is None or not find_spec("mpi4py"):
        pytest.skip("MPI is not installed; the extra mpi brings it")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    hosts = ["-np", str(n), "-H", f"localhost:{n}", "--oversubscribe"]
    done = subprocess.run(
        [launcher, *hosts, *line], env=environment(**root), capture_output=True, text=True,
        timeout=LIMIT, check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout + done.stderr
