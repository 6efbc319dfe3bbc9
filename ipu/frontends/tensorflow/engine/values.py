"""Values on their way: TensorFlow's tensors, and what nodes hand to each other.

A tensor of half, bfloat16 or float32 is an Array; its format is that of the data type, but float32
tensors hold values of the policy's format. Every other tensor is an ndarray as TensorFlow has it. A
handle of a variable or an iterator is an object of `engine.resources`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise import apply as elementwise
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, Format
from ipu.machine.device import Device

__all__ = ["FORMATS", "as_read", "enter", "is_floating", "leave", "numbers"]

#: Formats by data type.
FORMATS: dict[Any, Format] = {tf.half: BINARY16, tf.float32: BINARY32, tf.bfloat16: BFLOAT16}


def is_floating(dtype: Any) -> bool:
    """Whether tensors of a data type are Arrays."""
    return dtype in FORMATS


def enter(device: Device, values: Any, fmt: Format) -> Array:
    """Values of the host in a format, to nearest; they are copied as a transfer does."""
    values = np.asarray(values)
    if fmt == BINARY32 and values.dtype == np.float32:
        return Array(np.array(values, order="C"), device.context(fmt))
    return device.from_host(values, fmt)


def leave(value: Any, dtype: Any) -> NDArray[Any]:
    """A value as an ndarray of a data type; exact, since float32 holds every format."""
    if isinstance(value, Array):
        return np.asarray(value.carrier, dtype.as_numpy_dtype)
    return np.asarray(value, dtype.as_numpy_dtype)


def numbers(value: Any) -> NDArray[Any]:
    """The numbers of a value as an ndarray."""
    return value.carrier if isinstance(value, Array) else np.asarray(value)


def as_read(device: Device, value: Any) -> NDArray[Any]:
    """The numbers of a value as an operation reads them: subnormal ones are 0 where it flushes."""
    if not isinstance(value, Array):
        return np.asarray(value)
    return elementwise.as_read(value.carrier, device.context(value.format).core.settings)
