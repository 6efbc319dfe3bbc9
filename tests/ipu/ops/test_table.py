"""The table is whole, and arithmetic stands in it alone (law)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from fpsim.records.evidence import Evidence
from ipu import ops
from ipu.machine import Device
from ipu.ops.primitive import Primitive

FRONTENDS = Path(__file__).parents[3] / "ipu" / "frontends"
FILES = sorted(path.relative_to(FRONTENDS).as_posix() for path in FRONTENDS.rglob("*.py"))
#: Methods of a device that compute numbers.
VERBS = {
    "add", "conv2d", "conv2d_input_gradient", "conv2d_weight_gradient", "divide", "erf", "exp",
    "log", "matmul", "maximum", "multiply", "negative", "reduce_max",
    "reduce_squares", "reduce_sum", "relu", "rsqrt", "select", "select_positive", "sigmoid",
    "sqrt", "subtract", "tanh", "unscale",
}
#: Functions of numpy that compute numbers of the machine where they get carriers.
OF_NUMPY = {
    "add", "clip", "divide", "exp", "floor", "fmod", "log", "maximum", "minimum", "mod", "multiply",
    "nextafter", "power", "sqrt", "subtract", "sum", "tanh", "where",
}
#: Where numpy's functions see no numbers of the machine, and why.
ALLOWED = {
    ("tensorflow/kernels/arithmetic.py", "add"): "integers",
    ("horovod/collectives.py", "sum"): "integers",
    ("tensorflow/kernels/arithmetic.py", "where"): "what a status register says of infinities",
    ("tensorflow/kernels/moving/moves.py", "where"): "a choice of the program",
    ("tensorflow/training/cross_replica.py", "sum"): "integers",
    ("tensorflow/reports/twins.py", "exp"): "a shadow, which is told and not used",
    ("tensorflow/reports/twins.py", "sqrt"): "a shadow, which is told and not used",
    ("torch/inference.py", "exp"): "scores of a trained model, which are told and not used",
    ("torch/inference.py", "log"): "scores of a trained model, which are told and not used",
    ("torch/observing.py", "multiply"): "the size of an update, which is told and not used",
}
ALLOWED |= {
    ("tensorflow/engine/unread.py", name): "a loss that nothing reads, told in the report"
    for name in ("add", "divide", "multiply", "subtract", "sum", "where")
} | {
    ("tensorflow/kernels/host.py", name): "integers, and numbers that the host feeds"
    for name in ("add", "maximum", "minimum", "multiply", "subtract")
}
#: Rows that no front end names, and why.
WITHOUT_FRONT_END = {
    "concat": "a move: front ends have their own views and copies",
    "pad": "a move", "reshape": "a move", "strided_slice": "a move", "transpose": "a move",
    "recomputation_checkpoint": "a mark of the tape",
    "softmax_cross_entropy": "the tape's mean; front ends have sparse_cross_entropies and nll",
    "softmax_cross_entropy_dense": "the tape's mean; front ends have dense_cross_entropies",
}
_DEVICE = re.compile(r"(^|\.)_?device$|\.context\(.*\)$")


def arithmetic_in(source):
    """Names of the verbs, and of numpy's functions, that a source names."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute):
            continue
        owner, name = ast.unparse(node.value), node.attr
        if (name in VERBS and _DEVICE.search(owner)) or (name in OF_NUMPY and owner == "np"):
            names.add(name)
    return names


def rows_in(source):
    """Names of rows that a source names."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ops":
            names.add(node.attr)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ipu.ops."):
            names |= {alias.name for alias in node.names}
    return names


def text_of(name):
    return (FRONTENDS / name).read_text(encoding="utf-8")


def test_a_verb_of_the_device_and_a_function_of_numpy_are_noticed():
    source = (
        "y = call.device.add(x, x); f = device.tanh; np.floor(z); ops.add.value(d, x, x)\n"
        "self._device.context(fmt).multiply(x, y); names.add(x)"
    )
    assert arithmetic_in(source) == {"add", "tanh", "floor", "multiply"}
    assert rows_in(f"{source}\nfrom ipu.ops.random import shifted_normal") == {
        "add", "shifted_normal",
    }
    assert all(hasattr(Device, verb) for verb in VERBS)


@pytest.mark.parametrize("name", FILES)
def test_front_ends_name_rows_and_hold_no_arithmetic(name):
    assert arithmetic_in(text_of(name)) == {verb for file, verb in ALLOWED if file == name}


def test_every_row_has_a_front_end_or_a_reason():
    named = set().union(*map(rows_in, map(text_of, FILES)))
    assert set(ops.PRIMITIVES) - named == WITHOUT_FRONT_END.keys()


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
