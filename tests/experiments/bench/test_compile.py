"""Compilation and the start are timed in processes of their own (golden)."""

from __future__ import annotations

from ipu.experiments.bench import compile as compiling
from ipu.experiments.bench import startup
from ipu.experiments.bench.timing import Size, run


def test_compilation_is_timed_in_processes_of_its_own(monkeypatch):
    monkeypatch.setattr(compiling, "PRODUCT", "print({call})")
    family = compiling.Family("BINARY16", "RNE", "2.5")
    monkeypatch.setattr(compiling, "FAMILIES", {"none": family})
    records = list(run(compiling.cases(Size(1, 1), quick=True), 1))
    assert [(r.topic, r.data, r.ns_per_element) for r in records] == [
        ("cold none", "0 kernels", 2.5e9),
        ("warm none", "0 kernels", 2.5e9),
    ]


TINY = Size(n=300, repeats=1)


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
