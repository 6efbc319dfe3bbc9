"""Subnormal numbers: TensorFlow's threads flush them to zero, the machine's arithmetic must not.

TensorFlow sets the processor to flush before it calls a function of ours in a session. numpy would
flush with it, whatever `f32_denormals` and formats with binary32's exponents say.

What TensorFlow itself computes on the host (`host_call`) it flushes, here as on the vendor's host;
that is said once when a number changes by it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from fpsim.kernels.status import exchange_status
from fpsim.kernels.status_register import HAS_STATUS, USUAL
from ipu.frontends.tensorflow.settings.notes import note

__all__ = ["keeping_subnormals", "noted_on_host"]

_LIBRARY = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)
#: Bytes of the largest fenv_t among the platforms, and some more.
_SIZE = 128


def _environment() -> ctypes.Array[ctypes.c_char]:
    """The mode of this thread's arithmetic."""
    state = ctypes.create_string_buffer(_SIZE)
    if _LIBRARY.fegetenv(state):
        raise OSError("the processor's floating-point mode cannot be read")
    return state


#: The mode at import, in a thread of the user's program.
_DEFAULT = _environment()


@contextmanager
def keeping_subnormals() -> Iterator[None]:
    """Arithmetic inside, in this thread, keeps subnormal numbers."""
    if HAS_STATUS:  # the mode at import may flush too
        previous = exchange_status(USUAL)
        try:
            yield
        finally:
            exchange_status(previous)
        return
    before = _environment()
    _LIBRARY.fesetenv(_DEFAULT)
    try:
        yield
    finally:
        _LIBRARY.fesetenv(before)


# The host -----------------------------------------------------------------------------------------

#: Codes of the data types whose subnormal numbers TensorFlow flushes: type, exponent, fraction.
_FLUSHED = {
    tf.float32: (np.uint32, 0x7F800000, 0x007FFFFF), tf.bfloat16: (np.uint16, 0x7F80, 0x007F),
}


def noted_on_host(tensors: Sequence[Any]) -> list[Any]:
    """Tensors for TensorFlow on the host; it is said once when it flushes numbers of them."""
    return [_noted(x) if x.dtype in _FLUSHED else x for x in tensors]


def _noted(x: Any) -> Any:
    kind, exponents, fractions = _FLUSHED[x.dtype]

    def look(values: Any) -> Any:
        codes = np.asarray(values).view(kind)
        if np.any((codes & exponents == 0) & (codes & fractions != 0)):
            note(
                "host_call gets subnormal numbers; TensorFlow computes with them on the host, "
                "where it flushes them to zero"
            )
        return values

    result = tf.numpy_function(look, [x], x.dtype, name="subnormals")
    result.set_shape(x.shape)
    return result
