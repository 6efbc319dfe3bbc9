"""Composites: one node of the graph for a rule of `ipu.learn`, and one for its gradient.

A composite is a PyFunc node marked with the name of its kernel. The machine runs the kernel, and
TensorFlow by itself the formula in numpy. What a rule saves for its gradient goes from one node to
the other in an output of its own, which TensorFlow leaves at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

from ipu.frontends.tensorflow.engine.node import marked

__all__ = ["SAVED", "composite", "gradient_of", "nothing_saved"]

#: The output that holds what a rule saved: an object on the machine, zero on TensorFlow.
SAVED = tf.TensorSpec((), tf.float32)


def nothing_saved() -> Any:
    """What TensorFlow has in place of saved values."""
    return np.float32(0)


def composite(
    kernel: str, inputs: Sequence[Any], outputs: Sequence[tf.TensorSpec],
    formula: Callable[..., Any], **marks: Any,
) -> list[Any]:
    """The outputs of a node that the machine runs by a kernel and TensorFlow by a formula.

    formula    takes ndarrays and returns them, for several outputs as a tuple.
    marks      options of the kernel: integers, truth values, or what becomes a text.
    """
    with marked(kernel=kernel, **marks):
        results = tf.numpy_function(formula, list(inputs), [s.dtype for s in outputs], name=kernel)
    tensors = list(results) if isinstance(results, list | tuple) else [results]
    for tensor, spec in zip(tensors, outputs, strict=True):
        tensor.set_shape(spec.shape)
    return tensors


@contextmanager
def gradient_of(output: Any) -> Iterator[None]:
    """The nodes built inside belong to the gradient of the node that gives this output."""
    if not hasattr(output, "graph"):  # an eager tensor
        yield
        return
    with marked(direction="backward"), ops.get_default_graph()._original_op(output.op):
        yield
