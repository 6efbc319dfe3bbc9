"""Jobs in processes: same outcomes for any number, and an interruption that is quiet (law)."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fpsim import get_threads, set_threads
from ipu.experiments.lab.processes import as_finished, in_processes
from tests.tiers import pick

ROOT = Path(__file__).parents[3]

INTERRUPTED = """
import os, signal, sys, time
from pathlib import Path
from ipu.experiments.lab.processes import in_processes
from ipu.experiments.lab.progress import progress
from fpsim import set_threads

def work(seconds):
    for _ in progress(range(1), "working"):
        Path(f"counting-{os.getpid()}").touch()
        time.sleep(seconds)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has none
    set_threads(2)
    print("begins", flush=True)
    try:
        list(in_processes(work, [60.0] * 4, "sleeping"))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(130)
"""


@pytest.fixture
def two_threads():
    before = get_threads()
    set_threads(2)
    yield
    set_threads(before)


def test_outcomes_are_in_order_whatever_the_processes(two_threads):
    assert list(in_processes(abs, [-3, 2, -1], "three")) == [3, 2, 1]


def test_each_outcome_comes_with_its_job(two_threads):
    assert dict(as_finished(abs, [-3, 2, -1], 2, "three")) == {-3: 3, 2: 2, -1: 1}


def test_an_error_of_a_job_is_raised_and_ends_the_processes(two_threads):
    with pytest.raises(ValueError, match=r"math domain|nonnegative"):
        list(in_processes(math.sqrt, [1.0, -1.0], "roots"))


@pytest.mark.parametrize("delay", pick([0.3], *[[0.0, 0.3, 2.5]] * 2))
def test_an_interruption_prints_no_traceback_of_a_worker(delay, tmp_path):
    """At any moment: before the workers import, while they do, while they work."""
    process = started(tmp_path)
    time.sleep(delay)
    assert interrupted(process) == (130, "interrupted\n", "")


def test_workers_that_count_what_they_do_are_interrupted_in_silence(tmp_path):
    """Nothing of theirs is left that is shared between processes, such as the lock of a bar."""
    process = started(tmp_path)
    while len(list(tmp_path.glob("counting-*"))) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    assert interrupted(process) == (130, "interrupted\n", "")


def started(folder: Path) -> subprocess.Popen[str]:
    """Two workers are about to sleep for a minute."""
    script = folder / "sleeping.py"
    script.write_text(INTERRUPTED)
    process = subprocess.Popen(
        [sys.executable, str(script)], env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, cwd=folder,
    )
    assert process.stdout.readline() == "begins\n"
    return process


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Status and output after ^C."""
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process of the group
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err
