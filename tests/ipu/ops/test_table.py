"""The table is whole, and arithmetic stands in it alone (law)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fpsim.records.evidence import Evidence
from ipu import ops
from ipu.machine import Device
from ipu.ops.primitive import Primitive

FRONTENDS = Path(__file__).parents[3] / "ipu" / "frontends"
#: Files of front ends that name rows of elementwise families.
NAMING = (
    "torch/aten/activations.py", "torch/aten/extrema.py", "torch/aten/pointwise.py",
    "torch/aten/rows.py", "tensorflow/kernels/activations.py", "tensorflow/kernels/arithmetic.py",
    "tensorflow/kernels/functions.py", "tensorflow/kernels/quantizing.py",
    "tensorflow/kernels/rows.py",
)
#: Methods of a device that compute numbers.
VERBS = {
    "add", "divide", "erf", "exp", "log", "maximum", "multiply", "negative",
    "reduce_max", "reduce_sum", "relu", "rsqrt", "select", "select_positive",
    "sigmoid", "sqrt", "subtract", "tanh",
}
#: Functions of numpy that compute numbers of the machine where they get carriers.
OF_NUMPY = {
    "add", "clip", "divide", "exp", "floor", "fmod", "log", "maximum", "minimum", "mod", "multiply",
    "nextafter", "power", "sqrt", "subtract", "sum", "tanh", "where",
}
#: Where numpy's functions see no numbers of the machine, and why.
ALLOWED = {
    ("tensorflow/kernels/arithmetic.py", "where"): "what a status register says of infinities",
}


def arithmetic_in(source):
    """Names of the verbs and of numpy's functions that a source calls."""
    calls = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner, name = ast.unparse(node.func.value), node.func.attr
        if name in VERBS and owner.rpartition(".")[2] == "device":
            calls.add(name)
        if name in OF_NUMPY and owner == "np":
            calls.add(name)
    return calls


def test_a_verb_of_the_device_and_a_function_of_numpy_are_noticed():
    source = "y = call.device.add(x, x); z = device.tanh(y); np.floor(z); ops.add.value(d, x, x)"
    assert arithmetic_in(source) == {"add", "tanh", "floor"}
    assert all(hasattr(Device, verb) for verb in VERBS)


@pytest.mark.parametrize("name", NAMING)
def test_front_ends_name_rows_and_hold_no_arithmetic(name):
    calls = arithmetic_in((FRONTENDS / name).read_text(encoding="utf-8"))
    assert calls == {verb for file, verb in ALLOWED if file == name}


def test_every_name_of_a_family_is_one_row():
    rows = [
        getattr(family, name) for family in ops.FAMILIES for name in family.__all__
        if isinstance(getattr(family, name), Primitive)
    ]
    assert len({row.name for row in rows}) == len(rows) == len(ops.PRIMITIVES)
    for family in ops.FAMILIES:
        for name, row in vars(family).items():
            if isinstance(row, Primitive) and name == row.name:
                assert getattr(ops, name) is row


@pytest.mark.parametrize("name", ops.PRIMITIVES)
def test_fields_of_rows_are_filled_in(name):
    row = ops.PRIMITIVES[name]
    assert row.rounding
    assert bool(row.gradient) >= any(row.vjps)
    assert isinstance(row.evidence, Evidence)
    assert row.unit in ("AMP", "by rule", "vector", "none")
    assert not row.verb or hasattr(Device, row.verb)
    assert getattr(ops, name) is row
