"""Variables that the host holds as they left the machine enter without a conversion (law)."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import launch, machine, tf

from ipu.frontends.tensorflow.engine import resources  # isort: skip
from ipu.frontends.tensorflow.engine.host_values import HostValues  # isort: skip

#: What the host does to a variable of four numbers between two launches.
CHANGES = {
    "nothing": lambda v: None,
    "assign": lambda v: v.assign(tf.fill((4,), 0.7)),
    "assign_add": lambda v: v.assign_add(tf.fill((4,), 0.1)),
    "in a function": lambda v: tf.function(lambda: v.assign_sub(tf.fill((4,), 0.1)))(),
    "rows": lambda v: v.scatter_nd_update([[1]], [0.7]),
    "a NaN": lambda v: v.assign(tf.fill((4,), np.nan)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_the_host_writes_enters(change):
    v = tf.Variable(tf.fill((4,), 0.3))
    step = tf.function(lambda: v.assign(v / 3.0))
    with machine(policy="fp16"):
        for _ in range(3):
            launch(step)
            change(v)
            expected = np.float16(np.float16(v.numpy()) / np.float16(3))
            launch(step)
            assert np.array_equal(v.numpy(), expected.astype(np.float32), equal_nan=True)


def test_only_what_is_another_value_is_converted(monkeypatch):
    entered = []
    v, w = tf.Variable(tf.ones((4,))), tf.Variable(tf.ones((3,)))

    def enter(device, values, fmt, enter=resources.enter):
        entered.append(np.shape(values))
        return enter(device, values, fmt)

    monkeypatch.setattr(resources, "enter", enter)
    with machine(policy="fp16"):
        step = tf.function(lambda: (v.assign(v / 3.0), w.assign(w / 3.0)))
        launch(step)
        w.assign(tf.ones((3,)))
        launch(step)
    assert sorted(entered) == [(3,), (3,), (4,)]


def test_a_variable_of_another_format_is_converted_anew():
    """A machine of another policy has no values of this one's variables."""
    v = tf.Variable(tf.fill((4,), 0.3))
    step = tf.function(lambda: v.assign(v * 1.0))
    with machine(policy="fp32"):
        launch(step)
    with machine(policy="fp16"):
        launch(step)
    assert (v.numpy() == np.float32(np.float16(np.float32(0.3)))).all()


def test_values_go_with_their_variables():
    values, v, host = HostValues(), tf.Variable(tf.ones((4,))), tf.ones((4,))
    values.keep(v.handle, host, Device().from_host(np.ones(4), BINARY16))
    assert values.recall(v.handle, host) is not None
    assert values.recall(v.handle, tf.ones((4,)) + 0.0) is None
    del v
    gc.collect()
    assert not values._values
