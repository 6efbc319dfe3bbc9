"""Losses of predictions against targets: terms, and their sum or mean, in binary32.

A loss is binary32, as those of `ipu.ops.probabilities` are. Backward rules take its gradient in
binary32 and round once, into the format of the predictions or the one that is asked for. A mean is
the sum times fl(1/n).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu.machine.derived import derived
from ipu.machine.device import Device
from ipu.machine.reference import wide
from ipu.ops.activations import softplus_of
from ipu.ops.primitive import Primitive, Saved
from ipu.ops.rules import steps

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "mean_square", "nll",
]

#: How terms are reduced.
NONE, MEAN, SUM = "none", "mean", "sum"
Classes = NDArray[np.integer[Any]]


def _single(device: Device, x: Array) -> Array:
    return device.cast(x, wide(x.format))


def _reduced(device: Device, terms: Array, weight: Array | None, reduction: str) -> Array:
    """Terms times their weights, and their sum or mean."""
    if weight is not None:
        terms = device.multiply(terms, _single(device, weight))
    if reduction == NONE or not terms.ndim:
        return terms
    scale = 1 / terms.size if reduction == MEAN else 1.0
    return device.reduce_sum(terms, tuple(range(terms.ndim)), scale=scale).reshape(())


def _pulled(
    device: Device, slope: Array, weight: Array | None, reduction: str, fmt: Format
) -> Array:
    """The slope of a term, times its weight and over n for a mean, rounded once."""
    if weight is not None:
        slope = device.multiply(slope, _single(device, weight))
    if reduction == MEAN:
        slope = device.multiply(slope, 1 / slope.size)
    return device.cast(slope, fmt)


# Squares ----------------------------------------------------------------------------------------


def _mean_square(
    device: Device, x: Array, y: Array, *, reduction: str = MEAN
) -> tuple[Array, Saved]:
    gap = device.subtract(x, y)
    if reduction == NONE or not gap.ndim:
        single = _single(device, gap)
        return device.multiply(single, single), (gap,)
    scale = 1 / gap.size if reduction == MEAN else 1.0
    return device.reduce_squares(gap, tuple(range(gap.ndim)), scale=scale).reshape(()), (gap,)


def _mean_square_x(
    device: Device, gradient: Array, saved: Saved, *, reduction: str = MEAN
) -> Array:
    """(x - y) · 2/n · gradient."""
    (gap,) = saved
    factor = 2 / gap.size if reduction == MEAN else 2.0
    slope = device.multiply(_single(device, gap), factor)
    return device.cast(device.multiply(slope, _single(device, gradient)), gap.format)


def _mean_square_y(
    device: Device, gradient: Array, saved: Saved, *, reduction: str = MEAN
) -> Array:
    return device.negative(_mean_square_x(device, gradient, saved, reduction=reduction))


# Two classes ------------------------------------------------------------------------------------


def _with_logits(
    device: Device, x: Array, target: Array, *, weight: Array | None = None,
    positive: Array | None = None, reduction: str = MEAN,
) -> tuple[Array, Saved]:
    """(1 - t) · x + l · softplus(-x) with l = 1 + (positive - 1) · t."""
    a, t = _single(device, x), _single(device, target)
    term, p = softplus_of(device, device.negative(a)), None
    if positive is not None:
        p = _single(device, positive)
        more = device.multiply(device.subtract(p, 1.0), t)
        term = device.multiply(device.add(more, 1.0), term)
    terms = device.add(device.multiply(device.subtract(1.0, t), a), term)
    return _reduced(device, terms, weight, reduction), (x, t, p, weight)


def _with_logits_x(
    device: Device, gradient: Array, saved: Saved, *, reduction: str = MEAN, **_: Any
) -> Array:
    """gradient · ((1 - t) - l · sigmoid(-x))."""
    x, t, p, weight = saved
    below = device.sigmoid(device.negative(_single(device, x)))
    if p is not None:
        more = device.add(device.multiply(device.subtract(p, 1.0), t), 1.0)
        below = device.multiply(more, below)
    slope = device.subtract(device.subtract(1.0, t), below)
    slope = device.multiply(slope, _single(device, gradient))
    return _pulled(device, slope, weight, reduction, x.format)


def _bounded_log(device: Device, x: Array) -> Array:
    """max(log x, -100), without the pole of zero."""
    is_zero = np.asarray(x.carrier == 0)
    kind = x.carrier.dtype.type
    log = device.log(x.like(np.where(is_zero, kind(1), x.carrier)))
    values = np.maximum(np.where(is_zero, kind(-100), log.carrier), kind(-100))
    return log.like(np.asarray(values))


def _of_probabilities(
    device: Device, x: Array, target: Array, *, weight: Array | None = None, reduction: str = MEAN
) -> tuple[Array, Saved]:
    """-t · max(log x, -100) - (1 - t) · max(log(1 - x), -100)."""
    if not ((x.carrier >= 0) & (x.carrier <= 1)).all():
        raise ValueError("binary cross entropy takes probabilities, from 0 to 1")
    a, t = _single(device, x), _single(device, target)
    one, other = _bounded_log(device, a), _bounded_log(device, device.subtract(1.0, a))
    terms = device.negative(
        device.add(device.multiply(t, one), device.multiply(device.subtract(1.0, t), other))
    )
    return _reduced(device, terms, weight, reduction), (x, target, weight)


def _of_probabilities_x(
    device: Device, gradient: Array, saved: Saved, *, reduction: str = MEAN, **_: Any
) -> Array:
    """gradient · w · (x - t) / max(x · (1 - x), 1e-12), over n for a mean."""
    x, target, weight = saved
    a, t = _single(device, x), _single(device, target)
    spread = device.multiply(a, device.subtract(1.0, a))
    least = spread.carrier.dtype.type(1e-12)
    spread = spread.like(np.asarray(np.maximum(spread.carrier, least)))
    slope = device.multiply(_single(device, gradient), device.divide(device.subtract(a, t), spread))
    return _pulled(device, slope, weight, reduction, x.format)


# Negative log likelihood ------------------------------------------------------------------------


def _weights(
    device: Device, like: Array, classes: Classes, ignored: int, weight: Array | None
) -> NDArray[Any]:
    """Each row's weight in binary32, 0 where its class is ignored."""
    kind = wide(like.format).carrier
    if weight is None:
        return derived(device, lambda c: (c != ignored).astype(kind), classes)

    def rule(c: Classes, of_classes: NDArray[Any]) -> NDArray[Any]:
        used = c != ignored
        return np.where(used, of_classes[np.where(used, c, 0)], kind.type(0))

    return derived(device, rule, classes, weight.carrier)


def _at(classes: Classes, ignored: int, n: int) -> Classes:
    """Indices along the second axis of n classes, 0 where the class is ignored."""
    used = np.where(classes != ignored, classes, 0)
    wrong = used[(used < 0) | (used >= n)]
    if wrong.size:  # numpy would count negative ones from the end
        raise IndexError(f"Target {wrong[0]} is out of bounds.")
    return np.expand_dims(used, 1)


def share_of(
    device: Device, x: Array, classes: Classes, ignored: int, weight: Array | None
) -> Array:
    """The sum of the weights of the rows, in binary32."""
    single = None if weight is None else _single(device, weight)
    weights = _weights(device, x, classes, ignored, single)
    factors = Array(weights, device.context(wide(x.format)))
    return device.reduce_sum(factors, tuple(range(weights.ndim))).reshape(())


def _nll(
    device: Device, x: Array, *, classes: Classes, weight: Array | None = None,
    reduction: str = MEAN, ignored: int = -100,
) -> tuple[Array, Saved]:
    """-w · x[class] of each row; a mean is their sum over that of the weights."""
    rows, single = _single(device, x), None if weight is None else _single(device, weight)
    weights = _weights(device, x, classes, ignored, single)
    numbers = derived(
        device, lambda a, c: np.take_along_axis(a, _at(c, ignored, a.shape[1]), 1).squeeze(1),
        rows.carrier, classes,
    )
    terms = device.negative(rows.like(numbers))
    factors = rows.like(weights)
    if weight is not None:
        terms = device.multiply(terms, factors)
    terms = device.select(derived(device, lambda w: w != 0, weights), terms)
    saved = x.shape, x.format, single
    if reduction == NONE:
        return terms, saved
    axes = tuple(range(terms.ndim))
    total = device.reduce_sum(terms, axes).reshape(())
    if reduction == MEAN:
        total = device.divide(total, device.reduce_sum(factors, axes).reshape(()))
    return total, saved


def _nll_x(
    device: Device, gradient: Array, saved: Saved, *, classes: Classes,
    reduction: str = MEAN, ignored: int = -100, to: Format | None = None, **_: Any,
) -> Array:
    """-gradient · w at the class of each row; a mean divides the gradient by the weights' sum.

    to    the format of the result; by default that of the predictions.
    """
    shape, fmt, weight = saved
    g, fmt = _single(device, gradient), to or fmt
    weights = _weights(device, g, classes, ignored, weight)
    factors = g.like(weights)
    if reduction == MEAN:
        share = device.reduce_sum(factors, tuple(range(weights.ndim))).reshape(())
        g = device.divide(g, share)
    slope = device.negative(device.multiply(factors, g))
    slope = device.cast(device.select(derived(device, lambda w: w != 0, weights), slope), fmt)

    def spread(values: NDArray[Any], c: Classes) -> NDArray[Any]:
        rows = np.zeros(shape, values.dtype)
        np.put_along_axis(
            rows, _at(c, ignored, rows.shape[1]), np.expand_dims(values, 1), 1
        )
        return rows

    return Array(derived(device, spread, slope.carrier, classes), device.context(fmt))


_INSIDE, _PULLED = "binary32", "binary32 inside, once into the format of the predictions"


def _loss(
    name: str, forward: Callable[..., Any], *vjps: Any, first: str = "", **verbs: int
) -> Primitive:
    return Primitive(
        name, forward, vjps, cost=steps(verbs), rounding=f"{first}{_INSIDE}",
        gradient=f"{first}{_PULLED}",
    )


#: The squares of x - y; option `reduction`: their mean, sum, or none.
mean_square = _loss("mean_square", _mean_square, _mean_square_x, _mean_square_y,
                    first="the difference, then ", subtract=1, multiply=1, add=1)
#: Cross-entropy of two classes against targets from 0 to 1, of logits; `weight` of the terms,
#: `positive` of the first class.
binary_cross_entropy_with_logits = _loss(
    "binary_cross_entropy_with_logits", _with_logits, _with_logits_x, None, exp=1, log=1, add=4,
    multiply=2,
)
#: The same of probabilities.
binary_cross_entropy = _loss(
    "binary_cross_entropy", _of_probabilities, _of_probabilities_x, None, log=2, add=3, multiply=2
)
#: Minus the log-probability of the class of each row (the second axis); `weight` of the classes,
#: the class `ignored` counts nowhere.
nll = _loss("nll", _nll, _nll_x, select=1, multiply=1, add=1)
