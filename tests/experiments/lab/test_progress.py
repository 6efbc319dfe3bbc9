"""Progress: items pass unchanged, bars only on a terminal, none in a worker (law)."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from ipu.experiments.lab.progress import clock, progress

ROOT = Path(__file__).parents[3]
SCRIPT = """
import time
from ipu.experiments.lab import progress
progress.DELAY = 0.0
{first}
with progress.clock("clocked", {budget}):
    for _ in progress.progress(range(3), "counted"):
        time.sleep(0.3)
"""


def on_terminal(first: str, budget: float = 1.0) -> str:
    """What a run writes to a terminal as its standard error."""
    here, there = pty.openpty()
    termios.tcsetwinsize(there, (24, 80))
    code = SCRIPT.format(first=first, budget=budget)
    process = subprocess.Popen([sys.executable, "-c", code], stderr=there,
                               env=os.environ | {"PYTHONPATH": str(ROOT)})
    os.close(there)
    text = b""
    with suppress(OSError):  # Linux ends a terminal that nobody holds with an error
        while part := os.read(here, 4096):
            text += part
    os.close(here)
    assert process.wait() == 0
    return text.decode()


def test_items_pass_and_nothing_is_printed_without_a_terminal(capfd):
    with clock("clocked", 0.0):
        assert list(progress(iter("abc"), "letters")) == ["a", "b", "c"]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("budget", [1.0, 0.0])
def test_a_terminal_shows_what_runs_and_how_far_it_is(budget):
    text = on_terminal("", budget)
    assert "clocked" in text
    assert "counted" in text


def test_a_worker_shows_nothing():
    assert on_terminal("progress.be_quiet(); print(end='', flush=True)") == ""
