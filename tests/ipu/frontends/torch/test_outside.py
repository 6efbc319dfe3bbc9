"""Processes and older threads of a program are named in the report (law)."""

from __future__ import annotations

import multiprocessing
import threading
import warnings

import pytest

from tests.ipu.frontends.torch.framework import machine, torch

outside = pytest.importorskip("ipu.frontends.torch.outside")


def nothing():
    """What a process does."""


def started(how, name="reader"):
    process = multiprocessing.get_context(how).Process(target=nothing, name=name)
    process.start()
    process.join()
    assert process.exitcode == 0


def test_spawned_processes_are_told_once_and_named():
    with machine() as session, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        started("spawn")
        started("spawn", "writer")
    (warning,) = [w for w in told if "process" in str(w.message)]
    assert "process 'reader' (spawn), at " in str(warning.message)
    assert "test_outside.py:" in str(warning.message)
    report = session.report()
    sentence = "process 'reader' and 1 more, started by spawn: torch's own, in no count"
    assert sentence in report["outside"]
    assert sentence in str(report)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_processes_are_named():
    with machine() as session:
        started("fork")
    sentence = "process 'reader', started by fork: computed on the machine, in no count"
    assert sentence in session.report()["outside"]


def test_threads_of_the_program_that_began_before_are_named():
    gate = threading.Event()
    thread = threading.Thread(target=lambda: gate.wait(), name="prefetch")
    library = threading.Timer(600, nothing)  # waits in Python's own code
    library.name = "timer"
    thread.start()
    library.start()
    try:
        with machine() as session:
            torch.ones(2) * 0.1
    finally:
        gate.set()
        library.cancel()
        thread.join()
        library.join()
    (name,) = [n for n in session.report()["outside"] if "prefetch" in n or "timer" in n]
    assert name.startswith("thread 'prefetch' began before the session")


def test_nothing_is_named_of_a_program_without_them():
    start = multiprocessing.process.BaseProcess.start
    with machine() as session:
        assert multiprocessing.process.BaseProcess.start is not start
    assert multiprocessing.process.BaseProcess.start is start
    assert not [n for n in session.report()["outside"] if "process" in n]
