"""Threads over blocks: every number in one block, errors, forked processes (**law**)."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from threading import Barrier, Event, Lock, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fpsim as fp
from fpsim.state.threads import _blocks, _from_environment, run_blocks

#: Seconds after which a thread that waits for another one gives up.
PATIENCE = 20


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = fp.get_threads()
    fp.set_threads(2)
    yield
    fp.set_threads(before)


@pytest.mark.parametrize(("text", "processors", "expected"), [
    ("3", 8, 3), ("1", 8, 1), ("", 8, 8), ("", None, 1), (None, 8, 8),
])
def test_threads_are_those_of_the_environment_or_of_the_machine(
    monkeypatch, text, processors, expected
):
    """A machine that does not say how many processors it has gets one thread."""
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    if text is None:
        monkeypatch.delenv("FPSIM_THREADS", raising=False)
    else:
        monkeypatch.setenv("FPSIM_THREADS", text)
    assert _from_environment() == expected


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_an_environment_without_a_number_of_threads_is_an_error(monkeypatch, text):
    monkeypatch.setenv("FPSIM_THREADS", text)
    with pytest.raises(ValueError, match=f"FPSIM_THREADS='{text}' is not a number of threads"):
        _from_environment()


def _or_of_blocks() -> None:
    assert run_blocks(lambda a, b: ((1 << b) - 1) ^ ((1 << a) - 1), 0, 8, 1) == 255


@given(
    first=st.integers(0, 50), smallest=st.integers(1, 40), parts=st.integers(2, 9),
    more=st.integers(0, 2000), step=st.sampled_from([1, 4, 16]), even=st.booleans(),
)
def test_blocks_hold_every_number_once_and_are_long_enough(
    first, smallest, parts, more, step, even
):
    last = first + parts * smallest + more
    blocks = _blocks(first, last, smallest, step, parts, even=even)
    assert [n for block in blocks for n in range(*block)] == list(range(first, last))
    assert all(end - begin >= smallest for begin, end in blocks)
    assert all((begin - first) % step == 0 for begin, _ in blocks)
    assert len(blocks) <= (parts if even else 2 * parts)


def test_a_thread_that_is_late_leaves_blocks_to_the_others(two_threads):
    last_is_done, lock, done = Event(), Lock(), []

    def work(begin: int, end: int) -> int:
        if begin == 0:
            assert last_is_done.wait(PATIENCE)
        with lock:
            done.append(begin)
            if len(done) == 3:
                last_is_done.set()
        return 0

    run_blocks(work, 0, 8, 1)
    assert len(done) == 4
    assert done[-1] == 0


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("where", [0, 7])
def test_an_error_of_any_block_reaches_the_caller_and_the_next_call_works(two_threads, where, even):
    def work(begin: int, end: int) -> int:
        if where in range(begin, end):
            raise ZeroDivisionError(str(where))
        return 0

    for _ in range(3):
        with pytest.raises(ZeroDivisionError, match=str(where)):
            run_blocks(work, 0, 8, 1, even=even)
        _or_of_blocks()


def test_a_block_may_have_blocks_itself(two_threads):
    flags = run_blocks(lambda a, b: run_blocks(lambda c, d: d, 0, 4, 1) << 3 * a, 0, 2, 1)
    assert flags == 0b111 | 0b111 << 3 or flags == 0b110 | 0b110 << 3


def test_callers_on_several_threads_get_their_own_results(two_threads):
    start, results = Barrier(4), {}

    def call(i: int) -> None:
        start.wait(PATIENCE)
        results[i] = [run_blocks(lambda a, b: 1 << i, 0, 64, 1) for _ in range(50)]

    callers = [Thread(target=call, args=(i,)) for i in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(PATIENCE)
    assert results == {i: [1 << i] * 50 for i in range(4)}


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_computes_on_threads_of_its_own(two_threads) -> None:
    _or_of_blocks()
    child = multiprocessing.get_context("fork").Process(target=_or_of_blocks)
    child.start()
    child.join(PATIENCE)
    child.kill()
    child.join()
    assert child.exitcode == 0
