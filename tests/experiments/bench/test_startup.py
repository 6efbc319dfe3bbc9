"""The benchmark of the start measures processes and small calls (golden)."""

from __future__ import annotations

from ipu.experiments.bench import startup
from ipu.experiments.bench.timing import Size

TINY = Size(n=300, repeats=1)


def test_startup_measures_processes_and_small_calls():
    names = {case.topic for case in startup.cases(TINY, quick=False)}
    assert {"startup import", "startup cold", "startup warm", "call add"} <= names
