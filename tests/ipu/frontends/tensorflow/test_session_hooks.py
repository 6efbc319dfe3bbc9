"""Tensors of programs in the log (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.tensorflow.framework import ipu, machine, session, tf

v1 = tf.compat.v1
Hook = ipu.ipu_session_run_hooks.IPULoggingTensorHook


def logged(hook, tensors, runs):
    """What a hook logs of so many runs of a session."""
    texts = []

    def formatter(values):
        texts.append({name: value.tolist() for name, value in values.items()})
        return "said"

    hook._formatter = formatter

    def body(x):
        return x + 1, hook.log(tensors(x))

    with machine(), tf.Graph().as_default(), v1.variable_scope("", use_resource=True):
        x = v1.placeholder(tf.float32, [])
        (result,) = ipu.ipu_compiler.compile(body, [x])
        with v1.train.MonitoredSession(hooks=[hook]) as run:
            for i in range(runs):
                run.run(result, {x: i})
    return texts


def test_every_second_run_and_the_end_are_logged():
    texts = logged(Hook(every_n_iter=2, at_end=True), lambda x: {"x": 2 * x}, 6)
    assert texts == [{"x": 0}, {"x": 4}, {"x": 8}, {"x": 10}]


def test_the_end_logs_nothing_twice():
    texts = logged(Hook(every_n_iter=2, at_end=True), lambda x: {"x": 2 * x}, 5)
    assert texts == [{"x": 0}, {"x": 4}, {"x": 8}]


def test_all_values_since_the_last_time():
    every = Hook(every_n_iter=3, logging_mode=Hook.LoggingMode.ALL)
    assert logged(every, lambda x: {"x": x}, 5) == [{"x": [0]}, {"x": [1, 2, 3]}]


def test_a_list_has_the_tensors_names():
    (values,) = logged(Hook(at_end=True), lambda x: [tf.identity(x, "named")], 1)
    assert values == {"named:0": 0}


def test_the_log_has_names_and_values(monkeypatch):
    texts = []
    monkeypatch.setattr(v1.logging, "info", lambda form, *rest: texts.append(form % rest))
    hook = Hook(every_n_iter=1)
    with machine(), tf.Graph().as_default():
        program = ipu.ipu_compiler.compile(lambda: hook.log({"x": tf.constant(2.5)}))
        with v1.train.MonitoredSession(hooks=[hook]) as run:
            run.run(program)
    assert "x = 2.5" in texts


@pytest.mark.source("graphcore/tensorflow, ipu_session_run_hooks.py")
def test_the_vendors_refusals():
    with pytest.raises(ValueError, match="Cannot provide both every_n_iter and every_n_secs"):
        Hook(every_n_iter=1, every_n_secs=1)
    with pytest.raises(ValueError, match="Either every_n_iter, every_n_secs or at_end should"):
        Hook()
    with pytest.raises(RuntimeError, match="Did you forget to call the log function"):
        Hook(at_end=True).begin()
    hook = Hook(at_end=True)
    with session():
        hook.log(tf.constant(1.0))
        with pytest.raises(RuntimeError, match="log function more than once"):
            hook.log(tf.constant(1.0))
        with pytest.raises(TypeError, match=r"Expected `tf\.Tensor`, got <class 'float'>"):
            Hook(at_end=True).log(1.0)
