"""Composites: one node of the graph for a rule of `ipu.learn`, and one for its gradient.

A composite is a PyFunc node marked with the name of its kernel. The machine runs the kernel.
TensorFlow by itself, outside of the machine, runs the same rule on a device of the host: in
binary32, or binary64 for tensors of that type, with IEEE's subnormals and without status. So a
shadow (`reports.shadowing`) follows it, as the mark `rule` says. What a rule saves for its gradient
goes from one node to the other in an output of its own, which TensorFlow leaves at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

from fpsim.array import Array
from fpsim.records.formats import BINARY32, BINARY64
from ipu.frontends.tensorflow.engine.node import marked
from ipu.machine.device import Device

__all__ = ["SAVED", "composite", "gradient_of"]

#: The output that holds what a rule saved: an object on the machine, zero on TensorFlow.
SAVED = tf.TensorSpec((), tf.float32)


def composite(
    kernel: str, inputs: Sequence[Any], outputs: Sequence[tf.TensorSpec],
    rule: Callable[..., Any], **marks: Any,
) -> list[Any]:
    """The outputs of a node that the machine runs by a kernel and TensorFlow by a rule.

    rule     takes a device and arrays, ndarrays where they are integers, and returns such.
    marks    options of the kernel: integers, truth values, or what becomes a text.
    """

    def formula(*operands: Any) -> Any:
        device = Device("reference", f32_denormals="ieee")
        results = rule(device, *(_operand(device, value) for value in operands))
        results = results if isinstance(results, tuple) else (results,)
        is_wide = any(np.asarray(value).dtype == np.float64 for value in operands)
        values = [
            _output(result, spec, is_wide=is_wide)
            for result, spec in zip(results, outputs, strict=True)
        ]
        return values if len(values) > 1 else values[0]

    with marked(kernel=kernel, rule=True, **marks):
        results = tf.numpy_function(formula, list(inputs), [s.dtype for s in outputs], name=kernel)
    tensors = list(results) if isinstance(results, list | tuple) else [results]
    for tensor, spec in zip(tensors, outputs, strict=True):
        tensor.set_shape(spec.shape)
    return tensors


def _operand(device: Device, value: Any) -> Any:
    """An operand of a rule: numbers as an array, integers and truth values as they are."""
    value = np.asarray(value)
    if value.dtype.kind in "biu":
        return value
    return device.from_host(value, BINARY64 if value.dtype == np.float64 else BINARY32)


def _output(result: Any, spec: tf.TensorSpec, *, is_wide: bool) -> Any:
    """A result in the type of the node's output, or in binary64; saved values stay behind."""
    if spec is SAVED:
        return np.float32(0)
    kind = np.float64 if is_wide and spec.dtype.is_floating else spec.dtype.as_numpy_dtype
    values = result.carrier if isinstance(result, Array) else result
    return np.asarray(values, kind)


@contextmanager
def gradient_of(output: Any) -> Iterator[None]:
    """The nodes built inside belong to the gradient of the node that gives this output."""
    if not hasattr(output, "graph"):  # an eager tensor
        yield
        return
    with marked(direction="backward"), ops.get_default_graph()._original_op(output.op):
        yield
