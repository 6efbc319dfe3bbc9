"""Strands: one of all runs at a time, errors come out where it was resumed (law)."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("torch", reason="torch is not installed; run: make test-torch")

from ipu.frontends.poptorch.engine.strand import Strand


def test_strands_take_turns():
    seen = []

    def work(name):
        def run(strand):
            for i in range(3):
                seen.append((name, i))
                strand.pause()

        return run

    strands = [Strand(work(name)) for name in "ab"]
    for _ in range(4):
        for strand in strands:
            strand.resume()
    assert seen == [(name, i) for i in range(3) for name in "ab"]
    assert all(strand.is_over for strand in strands)


def test_an_error_comes_out_where_the_strand_was_resumed():
    def work(strand):
        strand.pause()
        raise KeyError("inside")

    strand = Strand(work)
    strand.resume()
    with pytest.raises(KeyError, match="inside"):
        strand.resume()
    with pytest.raises(RuntimeError, match="this strand is over"):
        strand.resume()


def test_closing_ends_the_thread_and_runs_what_must_run():
    ended = []

    def work(strand):
        try:
            strand.pause()
        finally:
            ended.append(True)

    before = threading.active_count()
    strand = Strand(work)
    strand.resume()
    strand.close()
    strand.close()
    assert ended == [True]
    assert threading.active_count() == before
    idle = Strand(work)
    idle.close()
    assert ended == [True]
