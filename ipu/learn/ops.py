"""The table of primitives: forward rule, one backward rule per argument, unit and cost.

A new primitive is one more `Primitive`. Backward rules run through the same device verbs and the
same units as the forward pass, in the format of the forward pass.

Source    docs/semantics.md §5 (units) and §6 (loss and logits gradient); poplibs, LossTransform.S.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.formats import BINARY32, Format
from ipu.learn.tensor import Primitive, Work
from ipu.machine.device import Device

__all__ = [
    "PRIMITIVES", "add", "bias", "cast", "matmul", "relu", "reshape", "scale",
    "softmax_cross_entropy",
]  # fmt: skip

Saved = tuple[Any, ...]


# Matrix product -------------------------------------------------------------------------------


def _matmul(
    device: Device, x: Array, y: Array, *, partials: Format | None = None
) -> tuple[Array, Saved]:
    if x.ndim != 2 or y.ndim != 2:
        raise ValueError(f"matmul takes matrices, got shapes {x.shape} and {y.shape}; reshape them")
    partials = partials or device.partials_for(x.format)
    return device.matmul(x, y, partials=partials), (x, y, partials)


def _matmul_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    _, y, partials = saved
    return device.matmul(gradient, y.T, partials=partials)


def _matmul_y(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    x, _, partials = saved
    return device.matmul(x.T, gradient, partials=partials)


def _matmul_cost(arrays: Sequence[Array], output: Array) -> Work:
    return Work(macs=output.size * arrays[0].shape[1])


# Element by element ---------------------------------------------------------------------------


def _add(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    if x.shape != y.shape:
        raise ValueError(f"add takes equal shapes, got {x.shape} and {y.shape}; bias broadcasts")
    return device.add(x, y), ()


def _same(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return gradient


def _bias(device: Device, x: Array, b: Array) -> tuple[Array, Saved]:
    if np.broadcast_shapes(x.shape, b.shape) != x.shape:
        raise ValueError(f"bias of shape {b.shape} does not broadcast to {x.shape}; reshape it")
    return device.add(x, b), (b.shape, b.format)


def _bias_b(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """The gradient summed over every axis along which the bias was broadcast."""
    shape, fmt = saved
    padded = (1,) * (gradient.ndim - len(shape)) + shape
    axes = tuple(a for a, n in enumerate(padded) if n == 1 and gradient.shape[a] > 1)
    if axes:
        gradient = device.reduce_sum(gradient, axes, fmt)
    return gradient.reshape(shape)


def _relu(device: Device, x: Array) -> tuple[Array, Saved]:
    y = device.relu(x)
    return y, (y,)


def _relu_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.select(saved[0].values > 0, gradient)


def _scale(device: Device, x: Array, *, factor: float) -> tuple[Array, Saved]:
    return device.multiply(x, factor), ()


def _scale_x(device: Device, gradient: Array, saved: Saved, *, factor: float) -> Array:
    return device.multiply(gradient, factor)


# Form and format ------------------------------------------------------------------------------


def _cast(device: Device, x: Array, *, dtype: Format) -> tuple[Array, Saved]:
    return device.cast(x, dtype), (x.format,)


def _cast_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """The cast reversed: the gradient goes back to the format that was cast."""
    return device.cast(gradient, saved[0])


def _reshape(device: Device, x: Array, *, shape: tuple[int, ...]) -> tuple[Array, Saved]:
    return x.reshape(shape), (x.shape,)


def _reshape_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return gradient.reshape(saved[0])


def _free(arrays: Sequence[Array], output: Array) -> Work:
    return Work()


# Loss -----------------------------------------------------------------------------------------


def _softmax_cross_entropy(
    device: Device, logits: Array, *, labels: NDArray[np.integer[Any]]
) -> tuple[Array, Saved]:
    """Mean over the batch of log sum exp(z) - z[label], z = logits - max, all in binary32."""
    x = device.cast(logits, BINARY32)
    z = device.subtract(x, device.reduce_max(x, axis=1))
    e = device.exp(z)
    total = device.reduce_sum(e, axis=1)
    rows = np.arange(len(labels))
    each = device.subtract(device.log(total).reshape(-1), z[rows, labels])
    loss = device.divide(device.reduce_sum(each, axis=0).reshape(()), float(len(labels)))
    return loss, (device.divide(e, total), logits.format)


def _softmax_cross_entropy_logits(
    device: Device, gradient: Array, saved: Saved, *, labels: NDArray[np.integer[Any]]
) -> Array:
    """(softmax - one hot) · gradient / batch in binary32, then rounded once to the logits."""
    probabilities, fmt = saved
    hot = np.zeros(probabilities.shape, np.float32)
    hot[np.arange(len(labels)), labels] = 1.0
    distance = device.subtract(probabilities, Array(hot, probabilities.context))
    share = device.divide(gradient, float(len(labels)))
    return device.cast(device.multiply(distance, share), fmt)


def _softmax_cost(arrays: Sequence[Array], output: Array) -> Work:
    return Work(results=5 * arrays[0].size + 3 * arrays[0].shape[0])


# The table ------------------------------------------------------------------------------------

#: x @ y for matrices; option `partials` (default: the device's).
matmul = Primitive("matmul", _matmul, (_matmul_x, _matmul_y), "AMP", _matmul_cost)
#: x + y of equal shapes.
add = Primitive("add", _add, (_same, _same))
#: x + b, b broadcast over the leading axes of x.
bias = Primitive("bias", _bias, (_same, _bias_b))
#: max(x, 0); NaN passes.
relu = Primitive("relu", _relu, (_relu_x,))
#: x times the constant `factor`.
scale = Primitive("scale", _scale, (_scale_x,))
#: x in the format `dtype`.
cast = Primitive("cast", _cast, (_cast_x,))
#: x in another shape.
reshape = Primitive("reshape", _reshape, (_reshape_x,), "none", _free)
#: Mean cross-entropy of the softmax of logits against integer `labels`: a binary32 scalar.
softmax_cross_entropy = Primitive(
    "softmax_cross_entropy", _softmax_cross_entropy, (_softmax_cross_entropy_logits,), "vector",
    _softmax_cost,
)  # fmt: skip

#: Every primitive by name.
PRIMITIVES: dict[str, Primitive] = {
    p.name: p for p in (matmul, add, bias, relu, scale, cast, reshape, softmax_cross_entropy)
}
