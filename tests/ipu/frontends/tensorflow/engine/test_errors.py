"""Traps and refusals tell node and line of the user's program, in few lines (golden)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fpsim import FloatingPointTrap
from tests.ipu.frontends.tensorflow.framework import configured, ipu, launch, machine, session, tf

from ipu.frontends.tensorflow.engine.errors import MachineError, UnsupportedNodeError  # isort: skip

v1 = tf.compat.v1


def line_of(text):
    """FILE:LINE of a text that stands once in this file."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return f"{__file__}:{number}"


def test_an_overflow_names_node_line_and_registers():
    @tf.function
    def program(x):
        with tf.name_scope("net"):
            return tf.multiply(x, x, name="square")  # the square

    with machine():
        configured(oflo=True)
        with pytest.raises(MachineError) as caught:
            launch(program, tf.constant([1.0, 10000.0], tf.float16))
    told = str(caught.value).splitlines()
    assert repr(caught.value) == f"MachineError({told[0]!r})"
    assert len(told) <= 10
    assert told[0].startswith("Tiles in excepted state: multiply raised OVERFLOW|INEXACT at (1,)")
    assert told[1:3] == ["in node net/square (Mul)", f"built at {line_of('the square')}"]
    assert any(line.startswith("$FP_CTL") for line in told)
    assert any("OFLO 0x1" in line for line in told if line.startswith("$FP_STS"))
    assert isinstance(caught.value, tf.errors.InternalError)
    assert isinstance(caught.value, FloatingPointError)
    assert isinstance(caught.value.trap, FloatingPointTrap)


def test_a_trap_in_a_gradient_names_its_forward_node():
    def body(x):
        w = v1.get_variable("w", [1], tf.float16, initializer=v1.constant_initializer(200.0))
        y = tf.multiply(x, w, name="product")  # the product
        return v1.gradients(y, w, grad_ys=y * 300)[0]  # the gradient

    with machine(), session() as run:
        configured(oflo=True)
        x = v1.placeholder(tf.float16, [1])
        (slope,) = ipu.ipu_compiler.compile(body, [x])
        run.run(v1.global_variables_initializer())
        assert run.run(slope, {x: [0.5]}).dtype == np.float16
        with pytest.raises(MachineError) as caught:
            run.run(slope, {x: [1.09]})
    told = str(caught.value).splitlines()
    assert len(told) <= 10
    assert told[1].startswith("in node gradients/product_grad/")
    assert told[2] == "a gradient of product (Mul)"
    assert told[3] == f"built at {line_of('the gradient')}"
    assert told[4] == f"its forward node at {line_of('the product')}"


def test_a_table_is_the_hosts():
    values = tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1]), tf.constant([2.0, 3.0]))
    table = tf.lookup.StaticHashTable(values, -1.0)
    with machine(), pytest.raises(UnsupportedNodeError, match=r"look up in dataset\.map, or keep"):
        launch(tf.function(lambda x: x * table.lookup(tf.constant([0]))), tf.ones([1]))


def test_an_unsupported_node_is_one_sentence_before_anything_runs():
    touched = tf.Variable(0.0)

    @tf.function
    def program(x):
        touched.assign_add(1.0)
        return tf.linalg.inv(x)  # the inverse

    with machine() as used, pytest.raises(UnsupportedNodeError) as caught:
        launch(program, tf.eye(2))
    assert str(caught.value) == (
        f"node MatrixInverse is a MatrixInverse on float32, which the machine has no kernel for; "
        f"it was built at {line_of('the inverse')}"
    )
    assert used.launches == 0
    assert touched.numpy() == 0


def test_an_unsupported_node_inside_of_a_loop_is_refused_too():
    @tf.function
    def program(x):
        return tf.while_loop(lambda y: True, lambda y: (tf.linalg.inv(y),), (x,),
                             maximum_iterations=2)

    with machine(), pytest.raises(UnsupportedNodeError, match="MatrixInverse"):
        launch(program, tf.eye(2))


def test_float64_has_no_arithmetic():
    with machine(), pytest.raises(UnsupportedNodeError, match="a AddV2 on float64"):
        launch(tf.function(lambda x: x + x), tf.constant(1.0, tf.float64))
    with machine(), pytest.raises(UnsupportedNodeError, match="node AddN adds float64, which no f"):
        launch(tf.function(lambda x: tf.add_n([x, x])), tf.constant(1.0, tf.float64))


def test_other_errors_say_where():
    @tf.function
    def program(x):
        return tf.numpy_function(lambda v: 1 / 0, [x], tf.float32)

    with machine(), pytest.raises(ZeroDivisionError) as caught:
        launch(program, tf.constant(1.0))
    assert any("in node PyFunc" in note and __file__ in note for note in caught.value.__notes__)
