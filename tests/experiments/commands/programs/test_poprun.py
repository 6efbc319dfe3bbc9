"""fpsim poprun: options, prefixes, exit status; over MPI where it is installed (golden)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from ipu.experiments.cli import main

POPRUN = [sys.executable, "-m", "ipu.experiments.cli", "poprun"]
#: Instance 1 fails after instance 0 has written: mpirun ends the others when one fails.
PROGRAM = """
import pathlib, sys, time, popdist
print(popdist.getNumTotalReplicas(), popdist.getReplicaIndexOffset(), *sys.argv[1:], flush=True)
written = pathlib.Path(__file__).with_suffix(".written")
if popdist.getInstanceIndex() == 0:
    written.touch()
while not written.exists():
    time.sleep(0.01)
sys.exit(3 * popdist.getInstanceIndex())
"""
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed: the extra mpi"
)


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def run(*arguments):
    done = subprocess.run([*POPRUN, *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, sorted(done.stdout.splitlines()), done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--num-instances", "2", "--num-replicas", "3"], "use a multiple of 2"),
     (["--transport", "tcp"], "use one of local, grpc, mpi"),
     (["--order", "any"], "is not an order"),
     (["--only-output-from-instance", "1"], "use 0 to 0"),
     (["--transport", "grpc", "--num-instances", "100000", "--num-replicas", "100000"],
      "no port for each"),
     (["--nonsense"], "--nonsense")],
)
def test_bad_options_are_one_line(options, message, capsys):
    assert main(["poprun", *options, "echo"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.source("S1-26")
def test_processes_of_this_computer(program):
    options = "--num-instances", "2", "--num-replicas", "4", "--transport", "grpc"
    status, lines, errors = run(*options, program, "--num-replicas", "x")
    assert lines == ["[0] 4 0 --num-replicas x", "[1] 4 2 --num-replicas x"]
    assert (status, errors) == (3, "")


def test_options_without_effect_say_so_once():
    status, lines, errors = run("--vipu-partition", "p", "--host", "a", "echo", "x")
    assert (status, lines) == (0, ["[0] x"])
    assert errors.splitlines() == [
        "poprun: --vipu-partition is accepted and has no effect here: no V-IPU server deals "
        "simulated IPUs",
        "poprun: --host is accepted and has no effect with --transport local: processes start on "
        "this computer",
    ]


@needs_mpi
def test_processes_of_mpirun(program):
    options = "--num-instances", "2", "--num-replicas", "4", "--allow-run-as-root"
    status, lines, _ = run(*options, "--host", "localhost:2", program, "x")
    assert lines == ["[0] 4 0 x", "[1] 4 2 x"]
    assert status == 3
