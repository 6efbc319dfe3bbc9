"""Guards: interruptions reach the program, and it ends with the guard's parent (golden)."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.ipu.frontends.popdist.living import HOLD, assert_ended

GUARD = [sys.executable, "-m", "ipu.frontends.popdist.guard"]
#: Holds a file, says so and waits for what it gets.
PROGRAM = (
    HOLD
    + """
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
hold(sys.argv[1])
print("runs", flush=True)
time.sleep(600)
"""
)
#: Starts a guard and ends without it when its program runs.
PARENT = """
import subprocess, sys
guard = subprocess.Popen(sys.argv[1:], start_new_session=True, stdout=subprocess.PIPE)
guard.stdout.readline()
"""


@pytest.fixture
def command(tmp_path):
    return [*GUARD, sys.executable, "-c", PROGRAM, str(tmp_path / "held")]


@pytest.fixture
def running(command):
    """A guard whose program runs."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout.readline() == "runs\n"
        yield process


def test_a_status_is_passed_on():
    assert subprocess.run([*GUARD, "sh", "-c", "exit 4"], timeout=60).returncode == 4


def test_the_program_gets_the_interruption(running):
    running.send_signal(signal.SIGUSR1)
    assert running.wait(60) == 7


def test_the_program_gets_sigterm(running):
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 128 + signal.SIGTERM


def test_the_program_ends_with_the_guards_parent(command, tmp_path):
    subprocess.run([sys.executable, "-c", PARENT, *command], check=True, timeout=60)
    assert_ended(tmp_path / "held")
