"""The table: every entry has a case beside TensorFlow, and says where it rounds (law)."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from tests.ipu.frontends.tensorflow import kernels as tests
from tests.ipu.frontends.tensorflow.framework import launch, machine, tf

from ipu.frontends.tensorflow import kernels  # isort: skip
from ipu.frontends.tensorflow.kernels.table import TABLE, moved, single  # isort: skip

#: Types that tests by other names hold.
ELSEWHERE = {
    "NoOp", "While", "Case", "BatchMatMul", "Inv", "ReadVariableOp", "AssignVariableOp",
    "AssignAddVariableOp", "AssignSubVariableOp", "VariableShape", "ResourceScatterAdd",
    "ResourceScatterSub", "ResourceScatterUpdate", "PyFunc", "EagerPyFunc",
    "Enqueue", "IteratorGetNext",
}  # fmt: skip


def test_every_entry_is_compared_with_tensorflow():
    kernels.load()
    cases = set(ELSEWHERE)
    for module in pkgutil.walk_packages(tests.__path__, f"{tests.__name__}."):
        if ".test_" in module.name and module.name != __name__:
            cases |= set(getattr(importlib.import_module(module.name), "CASES", ()))
    ours = {n for n, entry in TABLE.items() if entry.build.__module__.startswith(kernels.__name__)}
    assert sorted(ours - cases) == []


def test_entries_say_where_they_round():
    assert all(entry.rounding for entry in TABLE.values())


def test_values_move_and_outputs_are_as_kernels_return_them():
    assert moved(3, lambda v: v + 1) == 4
    assert single([1]) == 1
    assert single([1, 2]) == (1, 2)


def test_a_number_is_a_constant_of_the_nodes_format():
    """Through a kernel that has one: the reciprocal's 1."""
    with machine():
        result = launch(tf.function(lambda a: tf.raw_ops.Reciprocal(x=a)), tf.constant([4.0]))
    assert result.numpy() == pytest.approx(0.25)
