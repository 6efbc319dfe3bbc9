"""What `fpsim bench operations` times: law (the machine's operation is torch's, and rounded)."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from ipu.experiments.bench import operations
from ipu.experiments.bench.timing import Size, run
from tests.ipu.frontends.torch.framework import machine, torch


def test_every_operation_is_timed_in_each_format_and_counted():
    records = list(run(operations.cases(Size(n=1, repeats=1), quick=True), 1))
    names = {f"operation {name}" for name in operations.OPERATIONS}
    rows = {(r.topic, r.format, r.rounding, r.data) for r in records}
    kinds = {("binary32", "RNE", "torch"), ("binary16", "SR", "torch"),
             ("binary16", "SR", "counted")}
    assert rows == {(name, *kind) for name in names for kind in kinds}
    assert all(r.ratio and r.peer == f"torch {version('torch')}" for r in records)


@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_what_is_timed_runs_on_the_machine(name):
    operation = operations.OPERATIONS[name]
    tensors = [torch.ones(shape) for shape in operation.quick]
    call = operation.make(torch, *tensors)
    with machine("fp32") as session:
        call()
    assert session.report()["operations"]["machine"] > 0
