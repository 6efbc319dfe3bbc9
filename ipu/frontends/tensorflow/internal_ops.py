"""`internal_ops`: values of the machine shown while it runs."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["print_tensor"]


def print_tensor(input: Any, name: str = "") -> Any:
    """A node that prints a tensor to standard error; a TensorFlow 1 program has to need it."""
    tensor = tf.convert_to_tensor(input)
    shown = name or (tensor.op.name if not tf.executing_eagerly() else "tensor")

    def show(values: Any) -> None:
        text = np.array2string(np.asarray(values, np.float64), threshold=1000)
        print(f"{shown}: {text}", file=sys.stderr)

    if tf.executing_eagerly():
        show(tensor.numpy())
        return None
    return tf.numpy_function(show, [tensor], [])
