"""Threads over blocks: a forked process has its own (**law**)."""

from __future__ import annotations

import multiprocessing

import pytest

import fpsim as fp
from fpsim.state.threads import run_blocks


def _or_of_blocks() -> None:
    assert run_blocks(lambda a, b: 1 << a, 0, 2, 1) == 3


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_computes_on_threads_of_its_own() -> None:
    before = fp.get_threads()
    fp.set_threads(2)
    try:
        _or_of_blocks()
        child = multiprocessing.get_context("fork").Process(target=_or_of_blocks)
        child.start()
        child.join(20)
        child.kill()
        child.join()
        assert child.exitcode == 0
    finally:
        fp.set_threads(before)
