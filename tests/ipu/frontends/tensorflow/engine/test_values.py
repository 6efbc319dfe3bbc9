"""Tensors become Arrays and come back with the same codes (exhaustive, law)."""

from __future__ import annotations

import numpy as np

from fpsim import BFLOAT16, BINARY16, BINARY32
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import tf

from ipu.frontends.tensorflow.engine.values import (  # isort: skip
    FORMATS, as_read, enter, is_floating, leave, numbers,
)


def test_every_half_comes_back():
    codes = np.arange(1 << 16, dtype=np.uint16)
    halves = codes.view(np.float16)
    numbers = halves[~np.isnan(halves)]
    array = enter(Device(), numbers, BINARY16)
    assert array.format == BINARY16
    np.testing.assert_array_equal(leave(array, tf.half).view(np.uint16), numbers.view(np.uint16))


def test_every_bfloat16_comes_back():
    kind = tf.bfloat16.as_numpy_dtype
    values = np.arange(1 << 16, dtype=np.uint16).view(kind)
    without_nan = values[~np.isnan(values.astype(np.float32))]
    array = enter(Device("hypothetical"), without_nan, BFLOAT16)
    np.testing.assert_array_equal(leave(array, tf.bfloat16).view("u2"), without_nan.view("u2"))


def test_values_of_the_host_are_copied():
    host = np.float32([1, 2])
    array = enter(Device(), host, BINARY32)
    host[0] = 5
    assert array.values.tolist() == [1, 2]


def test_integers_stay():
    assert not is_floating(tf.int32)
    assert set(FORMATS) == {tf.half, tf.float32, tf.bfloat16}
    assert leave(np.int32([1]), tf.int32).dtype == np.int32
    assert numbers([1, 2]).tolist() == [1, 2]


def test_subnormal_numbers_are_read_as_zeros_where_the_machine_flushes():
    values = np.float32([1e-40, -1e-40, 2**-126, np.nan, 0])
    for f32_denormals, first in (("flush", 0), ("ieee", np.float32(1e-40))):
        device = Device(f32_denormals=f32_denormals)
        read = as_read(device, enter(device, values, BINARY32))
        np.testing.assert_array_equal(read, [first, -first, 2**-126, np.nan, 0])
    halves = np.float16([2**-24])
    np.testing.assert_array_equal(as_read(device, enter(device, halves, BINARY16)), halves)
    np.testing.assert_array_equal(as_read(device, [1, 2]), [1, 2])
