"""Processes of a launch: the first failure's status, ^C, and none left over (golden)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from ipu.frontends.popdist import processes
from ipu.frontends.popdist.launch import PoprunOptions
from ipu.frontends.popdist.processes import INTERRUPTED, run
from tests.ipu.frontends.popdist.living import HOLD, assert_ended

#: Holds a file, then does what its instance is told: leaves with a status, or waits.
PROGRAM = (
    HOLD
    + """
import signal, sys, time
folder, task = sys.argv[1], sys.argv[2 + int(os.environ["POPDIST_INSTANCE_INDEX"])]
if task == "stay":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
with open(f"{folder}/workers", "a") as file:
    file.write(f"{os.environ.get('FPSIM_WORKERS')}\\n")
hold(f"{folder}/" + os.environ["POPDIST_INSTANCE_INDEX"])
while len([name for name in os.listdir(folder) if name.isdigit()]) < 3:
    time.sleep(0.01)
if task.isdigit():
    sys.exit(int(task))
if task == "late":
    time.sleep(1)
    open(f"{folder}/said", "x").close()
    sys.exit(5)
try:
    time.sleep(600)
except KeyboardInterrupt:
    sys.exit(9)
"""
)
THREE = PoprunOptions(3, 3, transport="grpc")


def of(folder, *tasks):
    return [sys.executable, "-c", PROGRAM, str(folder), *tasks]


def assert_all_ended(folder):
    for index in "012":
        assert_ended(folder / index)


def test_all_succeed(tmp_path):
    assert run(THREE, of(tmp_path, "0", "0", "0")) == 0
    (addresses,) = set((tmp_path / "workers").read_text().splitlines())
    assert addresses.count("127.0.0.1:") == 3


def test_the_status_is_the_first_that_failed(tmp_path):
    assert run(THREE, of(tmp_path, "0", "6", "0")) == 6


def test_others_are_interrupted_when_one_has_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "GRACE", 0.2)
    assert run(THREE, of(tmp_path, "wait", "6", "wait")) == 6
    assert_all_ended(tmp_path)


def test_others_have_time_to_leave_when_one_has_failed(tmp_path):
    assert run(THREE, of(tmp_path, "late", "6", "0")) == 6
    assert (tmp_path / "said").exists()
    assert_all_ended(tmp_path)


def test_programs_that_stay_are_killed(tmp_path, monkeypatch):
    for name in ("GRACE", "SAVING", "ENDING"):
        monkeypatch.setattr(processes, name, 0.2)
    end, calls = processes._end, []

    def end_once(*arguments):
        calls.append(arguments)
        assert len(calls) == 1
        end(*arguments)

    monkeypatch.setattr(processes, "_end", end_once)
    assert run(THREE, of(tmp_path, "stay", "6", "stay")) == 6
    assert_all_ended(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_all(tmp_path, number):
    code = (
        "import sys; from ipu.frontends.popdist.launch import PoprunOptions;"
        "from ipu.frontends.popdist.processes import run;"
        "sys.exit(run(PoprunOptions(3, 3, transport='grpc'), sys.argv[1:]))"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code, *of(tmp_path, "wait", "wait", "wait")])
    while sum(path.name.isdigit() for path in tmp_path.iterdir()) < 3:
        assert launcher.poll() is None
        time.sleep(0.01)
    launcher.send_signal(number)
    assert launcher.wait(60) == INTERRUPTED
    assert_all_ended(tmp_path)


#: Needs a moment after its interruption, then leaves by itself.
LEAVING = """
import signal, sys, time
def leave(number, frame):
    time.sleep(0.2)
    sys.exit(7)
signal.signal(signal.SIGUSR1, leave)
print("ready", flush=True)
time.sleep(600)
"""


def test_instances_that_have_not_joined_have_a_moment_to_leave():
    process = subprocess.Popen([sys.executable, "-c", LEAVING], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout.readline() == "ready\n"
        processes._end([process], processes.UNSAVED)
        assert process.poll() == 7
