"""The law in TensorFlow: nodes that name rows element by element compute what the rows compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tensorflow.python.framework import op_def_registry

from ipu import ops
from ipu.frontends.tensorflow.kernels import table
from tests.ipu.frontends.tensorflow.framework import tf
from tests.ipu.frontends.tensorflow.kernels.nodes import on_machine
from tests.ipu.ops.law import FORMATS, codes_of_one, codes_of_two, of_row, outcome
from tests.ipu.ops.test_table import rows_in

FAMILIES = (ops.activations, ops.arithmetic, ops.bounds, ops.functions)
ROWS = {row for family in FAMILIES for row in ops.PRIMITIVES.values()
        if row is getattr(family, row.name, None)}
DTYPES = {"binary16": tf.float16, "bfloat16": tf.bfloat16}

#: Attributes of nodes, and the options of the row that they are.
OPTIONS = {
    "LeakyRelu": ({"alpha": 0.25}, {"slope": 0.25}),
    "LeakyReluGrad": ({"alpha": 0.25}, {"slope": 0.25}),
    "EluGrad": ({}, {"of_result": True}), "SeluGrad": ({}, {"of_result": True}),
}
#: Nodes whose tests stand elsewhere, and where.
ELSEWHERE = {
    "three operands: test_arithmetic.py, test_functions.py": ("ClipByValue", "Betainc"),
    "as many operands as a program has: test_arithmetic.py": ("AddN",),
    "images: test_products.py": ("BiasAdd", "BiasAddGrad"),
    "composites, no nodes of TensorFlow: test_rand.py": ("Dropout", "DropoutGrad"),
    "no kernel of TensorFlow for these types builds the node: the same row has another name": (
        "Inv", "InvGrad",
    ),
}


def nodes():
    """Those of TensorFlow's own; composites enter the table with the module that makes them."""
    skipped = {name for names in ELSEWHERE.values() for name in names}
    return [
        name for name, entry in sorted(table.TABLE.items())
        if name not in skipped and entry.rows and entry.rows[0] in ROWS
        and op_def_registry.get(name) is not None
    ]


def inputs(name):
    return [a.name for a in op_def_registry.get(name).input_arg]


def of_tensorflow(name, fmt, codes):
    attributes = OPTIONS.get(name, ({}, {}))[0]

    def compute(*arrays):
        named = dict(zip(inputs(name), arrays, strict=True))
        return getattr(tf.raw_ops, name)(**named, **attributes)

    kind = DTYPES[fmt.name].as_numpy_dtype
    arrays = [c.view(kind) for c in codes]
    (result,), used = on_machine(compute, *arrays, target="hypothetical", policy="f32")
    return outcome(result.view(np.uint16), fmt, used.status.word)


def is_built(name, fmt):
    """Whether TensorFlow builds nodes of this type for this format."""
    definition = op_def_registry.get(name)
    types = {t for a in definition.attr if a.name == "T" for t in a.allowed_values.list.type}
    return not types or DTYPES[fmt.name].as_datatype_enum in types


def of_the_row(name, fmt, codes):
    entry, options = table.TABLE[name], OPTIONS.get(name, ({}, {}))[1]
    row = entry.rows[0]

    def compute(device, *arrays):
        if not entry.gradient:
            return row.value(device, *arrays, **options)
        names = inputs(name)
        gradient = arrays[names.index("dy" if "dy" in names else "gradients")]
        (saved,) = (a for a in arrays if a is not gradient)
        return row.pull(0, device, gradient, (saved,), **options)

    return of_row(compute, fmt, codes)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("name", nodes())
def test_values_and_status_are_those_of_the_row(name, fmt):
    codes = codes_of_one(fmt) if len(inputs(name)) == 1 else codes_of_two(fmt)
    if not is_built(name, fmt):
        with pytest.raises(TypeError, match="not in list of allowed values"):
            of_tensorflow(name, fmt, codes)
        return
    ours = of_tensorflow(name, fmt, codes)
    row = of_the_row(name, fmt, codes)
    differing = [i for i, (a, b) in enumerate(zip(ours.codes, row.codes, strict=True)) if a != b]
    assert not differing, [tuple(hex(c[i]) for c in codes) for i in differing[:5]]
    assert ours.status == row.status


def test_every_other_node_of_these_rows_is_listed():
    listed = {name for names in ELSEWHERE.values() for name in names}
    assert listed <= table.TABLE.keys()
    assert len(nodes()) > 60


#: Files that compare rows of shapes with what TensorFlow computes: a row has its name there.
LAWS = [Path(__file__).parents[1] / f"test_law_{subject}.py"
        for subject in ("moves", "norms", "reductions")]


def test_every_row_that_tensorflow_reaches_has_a_law():
    """Updates are compared with their rows in test_updates.py."""
    reached = {
        row.name for entry in table.TABLE.values() for row in entry.rows
        if row.name in ops.PRIMITIVES
    }
    listed = {name for names in ELSEWHERE.values() for name in names}
    by_element = {table.TABLE[name].rows[0].name for name in {*nodes(), *listed}}
    by_shape = set().union(*(rows_in(path.read_text(encoding="utf-8")) for path in LAWS))
    assert not reached - by_element - by_shape
