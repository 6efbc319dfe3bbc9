"""Scopes of devices that TensorFlow does not have (golden, differential)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tensorflow.python.framework import ops

from ipu.frontends.tensorflow.devices import is_ipu
from ipu.frontends.tensorflow.settings.notes import forget
from tests.ipu.frontends.tensorflow.framework import configured, ipu, launch, machine, session, tf

IPU = "/device:IPU:0"
SCOPES = {
    "tf.device": lambda: tf.device(IPU),
    "tf.compat.v1.device": lambda: tf.compat.v1.device(IPU),
    "ops.device": lambda: ops.device(IPU),
    "a specification": lambda: tf.compat.v1.device(tf.DeviceSpec(device_type="IPU")),
    "a function": lambda: tf.compat.v1.device(lambda node: IPU),
    "a graph's own": lambda: tf.compat.v1.get_default_graph().device(IPU),
    "inside of the host's": lambda: tf.device("cpu"),
}


@pytest.mark.parametrize("device", [IPU, "IPU", "IPU:1", "ipu:0", "/job:a/task:0/device:ipu:2",
                                    tf.DeviceSpec(device_type="IPU")])
def test_names_of_ipus(device):
    assert is_ipu(device)


@pytest.mark.parametrize("device", [None, "", "cpu", "/device:CPU:0", "/job:ipu/device:GPU:0", 3])
def test_other_names(device):
    assert not is_ipu(device)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_compiled_function_in_the_scope_of_an_ipu(scope):
    def body(a, b):
        return tf.matmul(a, b)

    with machine(), session() as run:
        configured()
        with tf.device("cpu"):
            a = tf.compat.v1.placeholder(tf.float32, [2, 2])
        with SCOPES[scope](), warnings.catch_warnings():
            warnings.simplefilter("error")
            v = tf.compat.v1.get_variable("v", initializer=tf.ones([2, 2]))
            with ops.device(IPU):
                (result,) = ipu.ipu_compiler.compile(body, [a, v])
        run.run(tf.compat.v1.global_variables_initializer())
        np.testing.assert_array_equal(run.run(result, {a: np.eye(2)}), np.ones([2, 2]))


@pytest.mark.parametrize("where", ["outside", "inside"])
def test_a_compiled_function_of_a_strategy(where):
    @tf.function(jit_compile=True)
    def double(a):
        with tf.device(IPU):
            return a * 2

    with machine() as used, tf.device(IPU if where == "outside" else "cpu"):
        assert launch(double, tf.constant(3.0)).numpy() == 6
        assert used.launches == 1


def test_what_goes_nowhere_is_told():
    @tf.function(jit_compile=True)
    def natively():
        return tf.constant(1.0) + 1

    def in_scope(function):
        with ops.device(IPU):
            return function()

    forget()
    with pytest.warns(RuntimeWarning, match=r"nothing inside of tf\.device.* went to the machine"):
        assert in_scope(natively) == 2
    forget()
    with session() as run:
        with pytest.warns(RuntimeWarning, match="pass functions to ipu_compiler"):
            two = in_scope(lambda: tf.constant(1.0) + 1)
        assert run.run(two) == 2
