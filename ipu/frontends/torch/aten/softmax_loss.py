"""Softmax, its logarithm, and losses: binary32 inside, rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fpsim.array import Array
from fpsim.elementwise.order import largest_along
from fpsim.records.formats import BINARY32
from ipu import ops
from ipu.frontends.torch.aten.reductions import axes_of
from ipu.frontends.torch.aten.table import Call, aten
from ipu.ops.activations import softplus_of

__all__: list[str] = []

_INSIDE = "binary32 inside, once at the end"
_NONE, _MEAN = 0, 1


def _along(call: Call, primitive: Any, x: Array, dim: int) -> Array:
    """The rule of the last axis, along another one."""
    if x.ndim == 0:
        single: Array = primitive.forward(call.device, x.reshape(1))[0]
        return single.reshape(())
    turned = x.like(np.moveaxis(x.carrier, dim, -1))
    y: Array = primitive.forward(call.device, turned)[0]
    return y.like(np.moveaxis(y.carrier, -1, dim))


def _softmax_like(name: str, primitive: Any) -> None:
    def forward(call: Call, x: Any, dim: int, half_to_float: bool) -> Any:
        if half_to_float or not x.numel():
            return NotImplemented
        return call.result(_along(call, primitive, call.array(x), dim))

    def backward(call: Call, gradient: Any, output: Any, dim: int, input_dtype: torch.dtype) -> Any:
        if not output.numel() or not output.ndim:
            return NotImplemented
        y = call.arrays(output, gradient)[0]
        fmt, g = y.format, call.slope(gradient, y.format)
        g, y = (a.like(np.moveaxis(a.carrier, dim, -1)) for a in (g, y))
        x = primitive.vjps[0](call.device, g, (y,))
        return call.rounded(x.like(np.moveaxis(x.carrier, -1, dim)), fmt, input_dtype)

    aten(f"{name}.default", rounding=_INSIDE)(forward)
    aten(f"{name}_backward_data.default", rounding=_INSIDE)(backward)


_softmax_like("_softmax", ops.softmax)
_softmax_like("_log_softmax", ops.log_softmax)


@aten("_safe_softmax.default", rounding=_INSIDE)
def _safe_softmax(call: Call, x: Any, dim: int, dtype: torch.dtype | None = None) -> Any:
    """Softmax that gives zeros for a row of minus infinities, as masked attention needs it."""
    if dtype not in (None, x.dtype) or not x.numel() or not x.ndim:
        return NotImplemented
    a = call.array(x)
    masked = np.isneginf(a.carrier).all(axis=dim, keepdims=True)
    kept = np.broadcast_to(~masked, a.shape)
    return call.result(
        call.device.select(kept, _along(call, ops.softmax, call.device.select(kept, a), dim))
    )


@aten("logsumexp.default", rounding=_INSIDE)
def _logsumexp(call: Call, x: Any, dim: Any, keepdim: bool = False) -> Any:
    """max + log(sum(e**(x - max))), a maximum that is infinite counted as 0."""
    if not x.numel() or not x.ndim:
        return NotImplemented
    device, a = call.device, call.array(x)
    axes, wide = axes_of(a, dim), call.wide(a)
    most, _ = largest_along(wide.carrier, axes, wide.context.settings, number_wins=False)
    most[np.isinf(most)] = 0
    largest = wide.like(most)
    shifted = device.exp(device.subtract(wide, largest))
    y = device.add(device.log(device.reduce_sum(shifted, axes)), largest)
    if not keepdim:
        y = y.reshape([n for axis, n in enumerate(a.shape) if axis not in axes])
    return call.rounded(y, a.format)


# Negative log likelihood ------------------------------------------------------------------------


def _picked(target: torch.Tensor, ignore_index: int, weight: Array | None) -> Any:
    """Classes (0 where ignored), and each row's weight in binary32 (0 where ignored)."""
    classes = target.numpy()
    kept = classes != ignore_index
    classes = np.where(kept, classes, 0)
    weights = np.ones(classes.shape, np.float32) if weight is None else weight.carrier[classes]
    return classes, np.where(kept, weights, np.float32(0))


@aten("nll_loss_forward.default", "nll_loss2d_forward.default", rounding=_INSIDE)
def _nll_loss(
    call: Call, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int
) -> Any:
    """The sum of -w · x[class] over the rows, divided by the sum of the weights for a mean."""
    if not x.numel() or x.ndim == 1:
        return NotImplemented
    device = call.device
    a, w = call.arrays(x, weight)
    fmt, rows = a.format, call.wide(a)
    classes, weights = _picked(target, ignore_index, None if w is None else call.wide(w))
    chosen = np.take_along_axis(rows.carrier, np.expand_dims(classes, 1), 1).squeeze(1)
    each = device.negative(rows.like(chosen))
    factors = rows.like(weights)
    if w is not None:
        each = device.multiply(each, factors)
    each = device.select(weights != 0, each)
    if reduction == _NONE:
        nothing = torch.zeros((), dtype=x.dtype)
        return call.rounded(each, fmt), nothing
    axes = tuple(range(each.ndim))
    total = device.reduce_sum(each, axes).reshape(())
    share = device.reduce_sum(factors, axes).reshape(())
    if reduction == _MEAN:
        total = device.divide(total, share)
    return call.loss(total, fmt), call.result(share, torch.float32).to(x.dtype)


@aten("nll_loss_backward.default", "nll_loss2d_backward.default", rounding=_INSIDE)
def _nll_loss_backward(
    call: Call, gradient: Any, x: Any, target: Any, weight: Any, reduction: int,
    ignore_index: int, total_weight: Any,
) -> Any:  # fmt: skip
    """-g · w at the class of each row, g divided by the sum of the weights for a mean."""
    if not x.numel() or x.ndim == 1:
        return NotImplemented
    device = call.device
    fmt = call.format_of(x, gradient)
    g, w = call.slope(gradient, fmt), call.operand(weight, fmt)
    if call.memory.format_of(gradient) == BINARY32:
        fmt = BINARY32  # the gradient of the logits is rounded first
    classes, weights = _picked(target, ignore_index, None if w is None else call.wide(w))
    factors = g.like(weights)
    if reduction == _MEAN:
        share = device.reduce_sum(factors, tuple(range(weights.ndim))).reshape(())
        g = device.divide(g, share)
    slope = device.negative(device.multiply(factors, g))
    slope = device.cast(device.select(weights != 0, slope), fmt)
    spread = device.zeros(tuple(x.shape), fmt)
    np.put_along_axis(
        spread.carrier, np.expand_dims(classes, 1), np.expand_dims(slope.carrier, 1), 1
    )
    return call.result(spread)


# Two classes ----------------------------------------------------------------------------------


@aten("binary_cross_entropy_with_logits.default", rounding=_INSIDE)
def _two_classes(
    call: Call, x: Any, target: Any, weight: Any = None, positive: Any = None,
    reduction: int = _MEAN,
) -> Any:  # fmt: skip
    """(1 - t) · x + l · (log(1 + e**-|x|) + max(-x, 0)) with l = 1 + (positive - 1) · t."""
    if not x.numel():
        return NotImplemented
    device = call.device
    a, t, w, p = call.arrays(x, target, weight, positive)
    fmt, a, t = a.format, call.wide(a), call.wide(t)
    term = softplus_of(device, device.negative(a))
    if p is not None:
        more = device.multiply(device.subtract(call.wide(p), 1.0), t)
        term = device.multiply(device.add(more, 1.0), term)
    each = device.add(device.multiply(device.subtract(1.0, t), a), term)
    return call.loss(_weighted(call, each, w, reduction), fmt)


@aten("binary_cross_entropy.default", rounding=_INSIDE)
def _cross_entropy(
    call: Call, x: Any, target: Any, weight: Any = None, reduction: int = _MEAN
) -> Any:
    """-t · max(log x, -100) - (1 - t) · max(log(1 - x), -100)."""
    if not x.numel():
        return NotImplemented
    device = call.device
    a, t, w = call.arrays(x, target, weight)
    if not ((a.carrier >= 0) & (a.carrier <= 1)).all():
        raise ValueError("binary cross entropy takes probabilities, from 0 to 1")
    fmt, a, t = a.format, call.wide(a), call.wide(t)
    one = _bounded_log(call, a)
    other = _bounded_log(call, device.subtract(1.0, a))
    each = device.negative(
        device.add(device.multiply(t, one), device.multiply(device.subtract(1.0, t), other))
    )
    return call.loss(_weighted(call, each, w, reduction), fmt)


def _bounded_log(call: Call, x: Array) -> Array:
    """max(log x, -100), without the pole of zero."""
    is_zero = np.asarray(x.carrier == 0)
    log = call.device.log(x.like(np.where(is_zero, np.float32(1), x.carrier)))
    values = np.maximum(np.where(is_zero, np.float32(-100), log.carrier), np.float32(-100))
    return log.like(np.asarray(values))


@aten("binary_cross_entropy_backward.default", rounding=_INSIDE)
def _cross_entropy_backward(
    call: Call, gradient: Any, x: Any, target: Any, weight: Any = None, reduction: int = _MEAN
) -> Any:
    """g · w · (x - t) / max(x · (1 - x), 1e-12), over n for a mean."""
    if not x.numel():
        return NotImplemented
    device = call.device
    a, t, w = call.arrays(x, target, weight)
    fmt, g, a, t = a.format, call.slope(gradient, a.format), call.wide(a), call.wide(t)
    spread = device.multiply(a, device.subtract(1.0, a))
    spread = spread.like(np.asarray(np.maximum(spread.carrier, np.float32(1e-12))))
    slope = device.multiply(g, device.divide(device.subtract(a, t), spread))
    if w is not None:
        slope = device.multiply(slope, call.wide(w))
    if reduction == _MEAN:
        slope = device.multiply(slope, device.context(BINARY32).constant(1 / a.size))
    return call.rounded(slope, fmt)


def _weighted(call: Call, each: Array, weight: Array | None, reduction: int) -> Array:
    """Terms of a loss times their weights, and their sum or mean, in binary32."""
    device = call.device
    if weight is not None:
        each = device.multiply(each, call.wide(weight))
    if reduction == _NONE or not each.ndim:
        return each
    scale = 1 / each.size if reduction == _MEAN else 1.0
    return device.reduce_sum(each, tuple(range(each.ndim)), scale=scale).reshape(())


# Mean square ----------------------------------------------------------------------------------


@aten("mse_loss.default", rounding="the difference, then binary32 inside, once at the end")
def _mse_loss(call: Call, x: Any, y: Any, reduction: int = _MEAN) -> Any:
    device = call.device
    a, b = call.arrays(x, y)
    gap = device.subtract(a, b)
    if reduction == _NONE:
        wide = call.wide(gap)
        return call.rounded(device.multiply(wide, wide), gap.format)
    if not gap.size or not gap.ndim:
        return NotImplemented
    scale = 1 / gap.size if reduction == _MEAN else 1.0
    total = device.reduce_squares(gap, tuple(range(gap.ndim)), scale=scale).reshape(())
    return call.loss(total, gap.format)


@aten("mse_loss_backward.default", rounding="the difference, then binary32 inside, once at the end")
def _mse_loss_backward(call: Call, gradient: Any, x: Any, y: Any, reduction: int) -> Any:
    """(x - y) · 2/n · g."""
    device = call.device
    a, b = call.arrays(x, y)
    gap, g = device.subtract(a, b), call.slope(gradient, a.format)
    if not gap.size:
        return NotImplemented
    factor = 2 / gap.size if reduction == _MEAN else 2.0
    slope = device.multiply(call.wide(gap), device.context(BINARY32).constant(factor))
    return call.rounded(device.multiply(slope, g), gap.format)
