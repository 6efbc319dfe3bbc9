"""Processes and threads of a program: nothing is computed there unseen (law)."""

from __future__ import annotations

import multiprocessing
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

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


def in_thread(work, **options):
    thread = threading.Thread(target=work, **options)
    thread.start()
    thread.join()


def test_what_a_thread_computes_is_counted_as_native_and_told_once():
    def program():
        in_thread(lambda: torch.ones(3) * 0.1, name="prefetch")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: (torch.ones(3) * 0.1).sum()).result()

    with machine("f16") as session, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        program()
    (warning,) = told
    assert "aten.mul.Tensor in thread 'prefetch', at " in str(warning.message)
    assert "test_outside.py:" in str(warning.message)
    assert session.report()["native"] == 3


def test_moves_and_conversions_in_threads_are_silent():
    with warnings.catch_warnings(), machine("f16") as session:
        warnings.simplefilter("error")
        in_thread(lambda: torch.arange(3).float().view(3, 1).clone())
    assert session.report()["native"] == 0


def test_a_thread_that_outlives_the_session_is_left_alone():
    gate, values = threading.Event(), []

    def work():
        gate.wait()
        values.append(torch.ones(1) * 0.1)

    with machine() as session:
        thread = threading.Thread(target=work)
        thread.start()
    gate.set()
    thread.join()
    assert values
    assert session.report()["native"] == 0


def test_threads_afterwards_are_not_watched():
    start = threading.Thread.start
    with machine() as session:
        assert threading.Thread.start is not start
    assert threading.Thread.start is start
    in_thread(lambda: torch.ones(3) * 0.1)
    assert session.report()["native"] == 0


def test_work_of_a_pool_that_began_before_is_counted():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: None).result()
        submit = ThreadPoolExecutor.submit
        with machine() as session, pytest.warns(RuntimeWarning, match=r"aten\.mul\.Tensor in thr"):
            pool.submit(lambda x, y: x * y, torch.ones(3), y=torch.ones(3)).result()
        assert ThreadPoolExecutor.submit is submit
        pool.submit(lambda: torch.ones(3) * 0.1).result()
    assert session.report()["native"] == 1
