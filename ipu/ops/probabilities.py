"""Softmax, its logarithm and cross-entropies: binary32 inside, rounded once at the end.

All subtract the largest logit of a row first; sums run along the row in order. Backward rules widen
what they read to binary32 and round once into the logits' format.

Source    docs/semantics.md §6 (loss and logits gradient); poplibs, LogSoftmax.cpp (order of steps),
          LossTransform.S.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.order import largest_along
from ipu.machine.derived import derived
from ipu.machine.device import Device
from ipu.machine.reference import wide
from ipu.machine.stacked import StackedArray, StackedValues
from ipu.ops import in_binary64
from ipu.ops.in_one_call import in_one_call
from ipu.ops.primitive import Primitive
from ipu.ops.rules import Saved, steps

__all__ = [
    "dense_cross_entropies", "log_softmax", "logsumexp", "safe_softmax", "softmax",
    "softmax_cross_entropy", "softmax_cross_entropy_dense", "sparse_cross_entropies",
]

Labels = NDArray[np.integer[Any]]


@in_one_call
def shifted(device: Device, logits: Array) -> tuple[Array, Array, Array]:
    """z = logits - max, exp(z) and its sum over the last axis, all in binary32."""
    x = device.cast(logits, wide(logits.format))
    z = device.subtract(x, device.reduce_max(x, axis=-1))
    e = device.exp(z)
    return z, e, device.reduce_sum(e, axis=-1)


@in_binary64.by(in_binary64.softmax)
@in_one_call
def _softmax(device: Device, x: Array) -> tuple[Array, Saved]:
    if not x.size:
        return x, (x,)  # rows of no numbers have no largest one
    _, e, total = shifted(device, x)
    y = device.cast(device.divide(e, total), x.format)
    return y, (y,)


@in_binary64.by(in_binary64.softmax_x)
@in_one_call
def _softmax_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """y · (gradient - sum(gradient · y))."""
    y, g = (device.cast(a, wide(a.format)) for a in (saved[0], gradient))
    common = device.reduce_sum(device.multiply(g, y), axis=-1)
    return device.cast(device.multiply(y, device.subtract(g, common)), gradient.format)


@in_one_call
def _log_softmax(device: Device, x: Array) -> tuple[Array, Saved]:
    if not x.size:
        return x, (x,)
    z, _, total = shifted(device, x)
    y = device.cast(device.subtract(z, device.log(total)), x.format)
    return y, (y,)


@in_one_call
def _log_softmax_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """gradient - exp(y) · sum(gradient)."""
    y, g = (device.cast(a, wide(a.format)) for a in (saved[0], gradient))
    common = device.multiply(device.exp(y), device.reduce_sum(g, axis=-1))
    return device.cast(device.subtract(g, common), gradient.format)


def _is_used(x: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether a row is anything but minus infinities."""
    return np.asarray(~np.isneginf(x).all(axis=-1, keepdims=True))


def _safe_softmax(device: Device, x: Array) -> tuple[Array, Saved]:
    used = derived(device, _is_used, x.carrier)
    y = device.select(used, _softmax(device, device.select(used, x))[0])
    return y, (y,)


def _logsumexp(
    device: Device, x: Array, *, axis: tuple[int, ...] | None = None, keepdims: bool = False
) -> tuple[Array, Saved]:
    """max + log(sum(e**(x - max))), a maximum that is infinite counted as 0."""
    axes, x32 = axis or tuple(range(x.ndim)), device.cast(x, wide(x.format))
    most, _ = largest_along(x32.carrier, axes, x32.context.core.settings, number_wins=False)
    most[np.isinf(most)] = 0
    largest = x32.like(most)
    powers = device.exp(device.subtract(x32, largest))
    y = device.add(device.log(device.reduce_sum(powers, axes)), largest)
    if not keepdims:
        y = y.reshape([n for a, n in enumerate(x.shape) if a not in axes])
    return device.cast(y, x.format), ()


# Cross-entropies ------------------------------------------------------------------------------


def _mean(device: Device, terms: Array) -> Array:
    return device.divide(device.reduce_sum(terms, axis=0).reshape(()), float(len(terms)))


def _sparse_terms(
    device: Device, logits: Array, *, labels: Labels | StackedValues
) -> tuple[Array, Saved]:
    """log sum exp(z) - z[label] of each row; softmax and the labels are saved."""
    z, e, total = shifted(device, logits)
    if isinstance(labels, StackedValues):
        assert isinstance(z, StackedArray)
        picked: Array = labels.numbers_of(z)
    else:
        picked = z[np.arange(len(labels)), labels]
    terms = device.subtract(device.log(total).reshape(-1), picked)
    return terms, (device.divide(e, total), labels, logits.format)


def _dense_terms(device: Device, logits: Array, *, labels: Array) -> tuple[Array, Saved]:
    """The sum of labels · (log sum exp(z) - z) of each row."""
    z, e, total = shifted(device, logits)
    wanted = device.cast(labels, z.format)
    lost = device.subtract(device.log(total), z)
    terms = device.reduce_sum(device.multiply(wanted, lost), axis=-1).reshape(-1)
    return terms, (device.divide(e, total), wanted, logits.format)


def terms_slope(device: Device, saved: Saved) -> Array:
    """softmax - wanted: the gradient of the sum of the terms, in binary32."""
    probabilities, wanted, _ = saved
    if not isinstance(wanted, Array):
        wanted = _one_hot(probabilities, wanted)
    return device.subtract(probabilities, wanted)


def _one_hot(like: Array, labels: Labels | StackedValues) -> Array:
    """Rows with 1 at their label."""
    if isinstance(labels, StackedValues):
        assert isinstance(like, StackedArray)
        return labels.one_hot(like)
    hot = np.zeros(like.shape, like.carrier.dtype)
    hot[np.arange(len(labels)), labels] = 1.0
    return like.like(hot)


def _terms_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """(softmax - wanted) times the gradient of each row, rounded once to the logits."""
    slope = device.multiply(terms_slope(device, saved), gradient.reshape(-1, 1))
    return device.cast(slope, saved[2])


def _sparse(device: Device, logits: Array, *, labels: Labels) -> tuple[Array, Saved]:
    """Mean over the batch of log sum exp(z) - z[label]."""
    terms, (probabilities, _, fmt) = _sparse_terms(device, logits, labels=labels)
    return _mean(device, terms), (probabilities, fmt)


def _sparse_logits(device: Device, gradient: Array, saved: Saved, *, labels: Labels) -> Array:
    return _distance(device, gradient, saved, _one_hot(saved[0], labels))


def _dense(device: Device, logits: Array, *, labels: Array) -> tuple[Array, Saved]:
    """Mean over the batch of the sum of labels · (log sum exp(z) - z)."""
    terms, (probabilities, _, fmt) = _dense_terms(device, logits, labels=labels)
    return _mean(device, terms), (probabilities, fmt)


def _dense_logits(device: Device, gradient: Array, saved: Saved, *, labels: Array) -> Array:
    return _distance(device, gradient, saved, labels)


def _distance(device: Device, gradient: Array, saved: Saved, wanted: Array) -> Array:
    """(softmax - wanted) · gradient / batch in binary32, then rounded once to the logits."""
    probabilities, fmt = saved
    distance = device.subtract(probabilities, wanted)
    share = device.divide(gradient, float(len(probabilities)))
    return device.cast(device.multiply(distance, share), fmt)


_SHIFTING = {"cast": 1, "maximum": 1, "subtract": 1, "exp": 1, "add": 1}

#: exp(x) / sum exp(x) along the last axis.
softmax = Primitive(
    "softmax",
    _softmax,
    (_softmax_x,),
    cost=steps(_SHIFTING | {"divide": 1}, cast=1),
    rounding="binary32 inside, once at the end",
    gradient="binary32 inside, once at the end",
)
#: x - log sum exp(x) along the last axis.
log_softmax = Primitive(
    "log_softmax",
    _log_softmax,
    (_log_softmax_x,),
    cost=steps(_SHIFTING | {"subtract": 2}, cast=1),
    rounding="binary32 inside, once at the end",
    gradient="binary32 inside, once at the end",
)
#: Softmax that gives zeros for a row of minus infinities, as masked attention needs it.
safe_softmax = Primitive(
    "safe_softmax",
    _safe_softmax,
    (_softmax_x,),
    cost=steps(_SHIFTING | {"divide": 1}, cast=1),
    rounding="binary32 inside, once at the end",
    gradient="binary32 inside, once at the end",
)
#: log sum exp(x) over `axis` (default: all); option `keepdims`. No gradient flows.
logsumexp = Primitive(
    "logsumexp", _logsumexp, (None,), cost=steps(_SHIFTING | {"log": 1}, cast=1),
    rounding="binary32 inside, once at the end",
)
#: Mean cross-entropy of the softmax of logits against integer `labels`: a binary32 scalar.
softmax_cross_entropy = Primitive(
    "softmax_cross_entropy",
    _sparse,
    (_sparse_logits,),
    cost=steps(_SHIFTING | {"divide": 1}),
    rounding="binary32",
    gradient="binary32 inside, once into the format of the logits",
)
#: The same against rows of probabilities: `labels`, a binary32 array whose rows sum to 1.
softmax_cross_entropy_dense = Primitive(
    "softmax_cross_entropy_dense", _dense, (_dense_logits,),
    cost=steps(_SHIFTING | {"divide": 1, "subtract": 2, "multiply": 1, "add": 2}),
    rounding="binary32", gradient="binary32 inside, once into the format of the logits",
)
_PULLED = "binary32 inside, once into the format of the logits"
#: Cross-entropy of each row against integer `labels`, in binary32.
sparse_cross_entropies = Primitive(
    "sparse_cross_entropies", _sparse_terms, (_terms_x,), rounding="binary32", gradient=_PULLED,
    cost=steps(_SHIFTING | {"divide": 1}),
)
#: The same against rows of probabilities.
dense_cross_entropies = Primitive(
    "dense_cross_entropies", _dense_terms, (_terms_x,), rounding="binary32", gradient=_PULLED,
    cost=steps(_SHIFTING | {"divide": 1, "subtract": 2, "multiply": 1, "add": 2}),
)
