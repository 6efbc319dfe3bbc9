"""ipu_compiler.compile: what comes back, and what is refused (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, session, tf

from ipu.frontends.tensorflow.engine.errors import UnsupportedNodeError  # isort: skip

v1 = tf.compat.v1
build = ipu.ipu_compiler.compile


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda x: x + 1, [3]),
        (lambda x: (x + 1, x * 2), (3, 4)),
        (lambda x: {"a": x, "b": [x * 3]}, {"a": 2, "b": [6]}),
        (lambda x: [x, tf.no_op()], [2]),
        (lambda x: None, None),
        (lambda x: tf.no_op(), None),
        (lambda x: 5, [5]),
    ],
    ids=["one", "two", "nested", "with an operation", "nothing", "an operation", "a number"],
)
def test_results_have_the_vendors_structure(program, expected):
    with machine() as used, session() as run:
        result = build(program, [tf.constant(2)])
        assert run.run(result) == expected
        assert used.launches == 1


def test_arguments_may_be_nested():
    with machine(), session() as run:
        result = build(lambda pair, c: pair[0] * pair[1] + c, [(2, tf.constant(3)), 4])
        assert run.run(result) == [10]


def test_captured_tensors_are_fed_as_arguments_are():
    with machine(), session() as run:
        x = v1.placeholder(tf.float32, [])
        result = build(lambda: x * 2)
        assert run.run(result, {x: 3}) == [6]


def test_wrong_uses_are_refused():
    with pytest.raises(RuntimeError, match="builds graphs of TensorFlow 1"):
        build(lambda: 1)
    with tf.Graph().as_default():
        with pytest.raises(TypeError, match="inputs must be a list"):
            build(lambda x: x, tf.constant(1.0))
        with pytest.raises(TypeError, match="operations go side by side"):
            build(lambda: [[tf.constant(1)], tf.no_op()])
        with pytest.raises(ValueError, match=r"returns None inside of \{'a': None\}; return"):
            build(lambda: {"a": None})


def test_errors_of_a_program_are_short_however_it_imports_tensorflow(monkeypatch):
    from tensorflow.python.client.session import BaseSession

    monkeypatch.setattr(BaseSession, "run", lambda *arguments: None)
    with tf.Graph().as_default():
        build(lambda: 1)
    assert BaseSession.run._reports_failures


def test_a_node_without_a_kernel_is_refused_when_it_is_compiled():
    with machine(), session():
        x = v1.placeholder(tf.float32, [2, 2])
        with pytest.raises(UnsupportedNodeError, match=r"on float32.*test_compiler"):
            ipu.ipu_compiler.compile(
                lambda x: ipu.loops.repeat(2, lambda y: tf.linalg.inv(y), [x]), [x]
            )


def test_variables_have_to_be_resources():
    def net():
        w = tf.compat.v1.get_variable("w", [2], use_resource=False)
        return w * 2.0

    with machine(), session():
        configured()
        with pytest.raises(NotImplementedError, match=r"Non-resource Variables .* name: w\)"):
            ipu.ipu_compiler.compile(net)
