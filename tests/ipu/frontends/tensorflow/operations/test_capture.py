"""Captured gradients: by tag, one for each tensor (law)."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import ipu, launch, machine, tf

capture = ipu.grad_util_ops.capture_upstream_gradients
Tape = ipu.eager.backprop.GradientCaptureTape
Context = ipu.eager.backprop.GradientCaptureContext


def test_a_tape_keeps_what_flows_into_an_operation():
    @tf.function
    def compute(x):
        with Tape() as tape:
            tape.watch(x)
            p = capture(x * x, tag="square")
            y = 3.0 * p
        gradient = tape.gradient(y, x)
        return gradient, tape.captured_gradients["square"][0]

    with machine():
        gradient, captured = launch(compute, tf.constant(2.0))
    assert (float(gradient), float(captured)) == (12.0, 3.0)


def test_a_context_does_so_for_gradients_of_tensorflow_1():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant([2.0, 3.0])
        with Context() as context:
            a, b = capture(x * x, 2.0 * x, tag="both")
            slopes = tf.gradients(tf.reduce_sum(a * 5.0 + b), x)
        ours, (first, second) = session.run([slopes, context.captured_gradients["both"]])
    np.testing.assert_array_equal(ours[0], [22.0, 32.0])
    np.testing.assert_array_equal(first, [5.0, 5.0])
    np.testing.assert_array_equal(second, [1.0, 1.0])


def test_messages():
    with pytest.raises(RuntimeError, match="may only be used within the context of"):
        capture(tf.constant(1.0))
    x = tf.constant(1.0)
    with Tape(persistent=True) as tape:
        tape.watch(x)
        y = capture(x, tag="once")
    tape.gradient(y, x)
    with pytest.raises(ValueError, match="tag='once' has captured gradients already"):
        tape.gradient(y, x)


def test_backprop_is_found_by_both_names():
    module = importlib.import_module("tensorflow.python.ipu.eager.backprop")
    assert module.GradientCaptureTape is ipu.eager.backprop.GradientCaptureTape
