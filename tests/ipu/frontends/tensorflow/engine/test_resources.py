"""Variables are read once and know whether they were written (law)."""

from __future__ import annotations

import numpy as np

from fpsim import BINARY16, BINARY32
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import tf

from ipu.frontends.tensorflow.engine.resources import (  # isort: skip
    IteratorHandle, Variable,
)


def test_a_variable_is_read_once():
    reads = []

    def read():
        reads.append(1)
        return np.float32([0.1])

    variable = Variable("w", tf.float32, BINARY32, read, Device())
    assert variable.value is variable.value
    assert len(reads) == 1
    assert not variable.is_written


def test_a_variable_keeps_its_format():
    device = Device()
    variable = Variable("w", tf.float32, BINARY16, lambda: np.float32([0.1]), device)
    assert variable.value.format == BINARY16
    variable.value = device.from_host([0.3], BINARY32)
    assert variable.is_written
    assert variable.host()[0] == np.float32(np.float16(0.3))


def test_an_iterator_gives_ndarrays():
    elements = iter(tf.data.Dataset.range(3))
    handle = IteratorHandle(elements._iterator_resource)
    (value,) = handle.take([tf.int64], [[]])
    assert value == 0
