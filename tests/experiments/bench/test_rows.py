"""Rows of the benchmarks: arithmetic, compilation, queues, other tools (golden, law)."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from fpsim.elementwise.apply import apply
from fpsim.records.formats import BINARY16
from fpsim.records.rounding import MODES, RNE, RTP, RTZ, SR
from fpsim.records.settings import Settings
from fpsim.state.threads import get_threads
from ipu.experiments.bench import arith, startup
from ipu.experiments.bench import compile as compiling
from ipu.experiments.bench import round as rounding
from ipu.experiments.bench.data import make
from ipu.experiments.bench.feed import ELEMENTS, cases
from ipu.experiments.bench.peers import rounding_peers
from ipu.experiments.bench.timing import Size, TimedCase, run
from ipu.feed.counters import record_launches

TINY = Size(n=300, repeats=1)


def described(cases):
    return {(c.topic, c.format, c.rounding, c.bits, c.flags, c.data, c.peer) for c in cases}


def test_the_table_has_every_format_mode_and_kind_of_data():
    mine = {c for c in described(rounding.cases(TINY, quick=False)) if c[-1] is None}
    assert len({c[1] for c in mine if c[0] == "round"}) == 13
    for bits in (4, 13, 32):
        for flags in (False, True):
            for data in ("normal", "mixed"):
                assert ("round", "binary16", "SR", bits, flags, data, None) in mine
    assert ("round", "e4m3fn", "RTO", None, True, "mixed", None) in mine
    assert ("round packed", "bfloat16", "RNE", None, False, "mixed", None) in mine
    assert ("round float64", "binary32", "RTP", None, False, "mixed", None) in mine
    theirs = described(arith.cases(TINY, quick=False))
    assert ("arith fma", "binary32", "SR", 27, True, "normal", None) in theirs
    assert len({c[1] for c in theirs if c[0] == "arith divide"}) == 14
    assert {c[2] for c in theirs if c[:2] == ("arith multiply", "binary16")} == {*MODES, "SR"}
    assert {c[2] for c in theirs if c[:2] == ("arith divide", "binary16")} == {"RNE", "RTP", "SR"}
    assert any(c[-1] and c[-1].startswith("numpy ") for c in theirs)


@pytest.mark.parametrize("flags", [False, True])
def test_what_is_timed_writes_the_result(flags):
    x, out = make("mixed", 300), np.empty(300, np.float32)
    rounding._call(BINARY16, RNE, flags, x, out)()
    wanted, _ = apply("convert", (x,), Settings(BINARY16))
    np.testing.assert_array_equal(out, wanted)


def test_compilation_is_timed_in_processes_of_its_own(monkeypatch):
    monkeypatch.setattr(compiling, "PRODUCT", "print({call})")
    family = compiling.Family("BINARY16", "RNE", "2.5")
    monkeypatch.setattr(compiling, "FAMILIES", {"none": family})
    records = list(run(compiling.cases(Size(1, 1), quick=True), 1))
    assert [(r.topic, r.data, r.ns_per_element) for r in records] == [
        ("cold none", "0 kernels", 2.5e9),
        ("warm none", "0 kernels", 2.5e9),
    ]


def test_startup_measures_processes_and_small_calls():
    names = {case.topic for case in startup.cases(TINY, quick=False)}
    assert {"startup import", "startup cold", "startup warm", "call add"} <= names


def test_each_case_says_what_it_measures():
    """Flags are wanted in all of them; only a cold start begins without compiled code."""
    cases = list(startup.cases(TINY, quick=False))
    assert all(case.flags for case in cases)
    assert [case.topic for case in cases if not case.warm] == ["startup cold"]
    assert {(case.topic.split()[0], case.n, case.data) for case in cases} == {
        ("startup", 1, "-"), ("call", startup.OFTEN, "16"),
    }
    assert {(case.rounding, case.bits) for case in cases if case.topic == "call add"} == {
        ("RNE", None), ("SR", 13),
    }


def test_a_tool_of_one_thread_is_measured_beside_one_thread():
    thread_counts = []

    def call():
        thread_counts.append(get_threads())

    (record,) = run([TimedCase("t", "f", lambda: call, call, 1, 1, alone=True)], 3)
    assert record.threads == 1
    assert set(thread_counts) == {1}
    cases = [*rounding.cases(TINY, quick=True), *arith.cases(TINY, quick=True)]
    alone = {c.peer.split()[0] for c in cases if c.peer and c.alone}
    assert alone >= {"numpy", "ml_dtypes", "gfloat"}
    assert "torch" not in alone
    assert not any(c.alone for c in cases if c.peer is None)


@pytest.mark.parametrize("fmt", rounding.FORMATS, ids=str)
def test_every_tool_that_is_installed_takes_what_it_is_given(fmt):
    x, out = make("normal", 100), np.empty(100, np.float32)
    for mode in (RNE, RTZ, RTP, SR(13)):
        for _, prepare in rounding_peers(fmt, mode):
            prepare(x, out)()


def test_every_case_is_a_loop_of_so_many_iterations():
    expected = {"feed repeat": (0, 0), "feed infeed": (1, 0), "feed outfeed": (0, 1)}
    topics = []
    for case in cases(Size(1, 1), quick=True):
        call = case.prepare()
        with record_launches() as record:
            call()
        counters, (into, out) = record.counters, expected[case.topic]
        assert (counters.launches, counters.iterations) == (1, case.n)
        assert (counters.elements_in, counters.elements_out) == (into * case.n, out * case.n)
        if case.reference is not None:
            case.reference()
            moved = counters.bytes_in + counters.bytes_out
            assert moved == case.n * ELEMENTS[case.data][0]
        topics.append((case.topic, case.data))
    assert len(topics) == len(set(topics)) == 2 + 2 * len(ELEMENTS)
    del call
    gc.collect()
