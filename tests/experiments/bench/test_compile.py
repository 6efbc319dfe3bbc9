"""Compilation is timed in processes of its own (golden)."""

from __future__ import annotations

from ipu.experiments.bench import compile as compiling
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
