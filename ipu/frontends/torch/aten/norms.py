"""Batch, layer and group norm by the rules of `ipu.ops.norms`, with the stable variance.

A weight norm, w = g · v / |v|, is computed in binary32 and rounded once.

What the rules save for their backward (whitened values, inverse deviation) stays with the memory
of the saved inverse deviation, so that the backward reads what the forward computed. Where that
memory was replaced, the backward computes it again from the input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from ipu import ops
from ipu.frontends.torch.aten.table import Call, aten
from ipu.ops.norms import (
    Statistics,
    batch_statistics,
    known_statistics,
    saved_of,
    weight_norm_gradients,
)
from ipu.ops.primitive import Saved

__all__: list[str] = []

_PLACES = "as `ipu.ops.norms` says"
_INSIDE = "binary32 inside, once at the end"
#: Rows of batch norm, in training and after it.
_BATCH = (ops.batch_norm, ops.normalise)


def _scale(
    call: Call, weight: Array | None, bias: Array | None, n: int, fmt: Format
) -> tuple[Array, Array]:
    """gamma and beta; ones and zeros where a layer has none."""
    context = call.device.context(fmt)
    gamma = context.ones(n) if weight is None else weight
    return gamma, context.zeros(n) if bias is None else bias


def _read(call: Call, x: Any, *others: Any) -> tuple[Any, ...]:
    """Images in the format of their data type; weights and biases, of any type, in that format."""
    a = call.array(x)
    return a, *(None if other is None else call.memory.read(other, a.format) for other in others)


def _saved(call: Call, inverse: Any, fmt: Format) -> Saved | None:
    """What the forward saved; of one that computed in another format, in that of its backward."""
    saved: Saved | None = call.memory.saved(inverse)
    if saved is None or saved[0].format == fmt:
        return saved
    return tuple(call.device.cast(array, fmt) for array in saved)


def _slope(call: Call, array: Array, parameter: Any) -> torch.Tensor:
    """The gradient of a weight or bias, which has the data type of the weight."""
    return call.result(array, None if parameter is None else parameter.dtype)


# Batch norm -----------------------------------------------------------------------------------


def _channels_last(x: Array) -> Array:
    return x.like(np.ascontiguousarray(np.moveaxis(x.carrier, 1, -1)))


def _channels_first(y: Array) -> Array:
    return y.like(np.moveaxis(y.carrier, -1, 1))


def _known_statistics(call: Call, x: Array, mean: Any, variance: Any, epsilon: float) -> Statistics:
    """Of an evaluation: the running mean and variance."""
    memory = call.memory
    wide = memory.read(variance, BINARY32)
    centre = memory.read(mean, memory.format_of(mean) or x.format)
    return known_statistics(call.device, x, centre, wide, epsilon)


def _moved(call: Call, running: torch.Tensor, fresh: Array, momentum: float) -> Array:
    """running · (1 - momentum) + momentum · fresh, in the format of the running statistic."""
    fmt = call.memory.format_of(running) or call.format_of(running)
    share, rest = call.constant(momentum, fmt), call.constant(1 - momentum, fmt)
    return ops.moving_average.value(
        call.device, call.memory.read(running, fmt), fresh, rest=rest, share=share,
        fresh_first=True,
    )


@aten("native_batch_norm.default", "_native_batch_norm_legit.default", of=_BATCH, rounding=_PLACES)
def _batch_norm(
    call: Call, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
    mean: torch.Tensor | None, variance: torch.Tensor | None, training: bool, momentum: float,
    epsilon: float,
) -> Any:
    if not x.numel():
        return NotImplemented
    device = call.device
    a, w, b = _read(call, x, weight, bias)
    images = _channels_last(a)
    gamma, beta = _scale(call, w, b, images.shape[-1], a.format)
    moved: list[tuple[torch.Tensor, Array]] = []
    if training:
        statistics = batch_statistics(device, images, epsilon, stable=True)
        if mean is not None:
            n = images.size // images.shape[-1]
            spread = statistics.variance
            if n > 1:
                spread = ops.unbiased.value(device, spread, n=n)
            moved = [
                (running, _moved(call, running, fresh.reshape(-1), momentum))
                for running, fresh in ((mean, statistics.mean), (variance, spread))
            ]
    else:
        statistics = _known_statistics(call, images, mean, variance, epsilon)
    y, saved = ops.batch_norm.forward(device, images, gamma, beta, statistics=statistics)
    for running, fresh in moved:  # after everything that may stop
        running.copy_(call.memory.write(fresh, running.dtype))
        call.memory.mark(running, fresh.format)
    result = call.result(_channels_first(y), x.dtype)
    if not training:
        nothing = torch.empty(0, dtype=x.dtype)
        return result, nothing, nothing.clone()
    mean, inverse = (
        call.result(s.reshape(-1), x.dtype) for s in (statistics.mean, statistics.inverse)
    )
    call.memory.save(inverse, saved)
    return result, mean, inverse


@aten("_native_batch_norm_legit.no_stats", of=_BATCH, rounding=_PLACES)
def _batch_norm_alone(
    call: Call, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
    training: bool, momentum: float, epsilon: float,
) -> Any:
    return _batch_norm(call, x, weight, bias, None, None, True, momentum, epsilon)


@aten("_batch_norm_with_update.default", of=_BATCH, rounding=_PLACES)
def _batch_norm_with_update(
    call: Call, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
    mean: torch.Tensor, variance: torch.Tensor, momentum: float, epsilon: float,
) -> Any:
    results = _batch_norm(call, x, weight, bias, mean, variance, True, momentum, epsilon)
    if results is NotImplemented:
        return results
    return (*results, torch.empty(0, dtype=torch.uint8))


@aten("batch_norm_backward.default", of=_BATCH, gradient=True, rounding=_PLACES)
def _batch_norm_backward_with_update(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor,
    mean: torch.Tensor | None, variance: torch.Tensor | None, save_mean: torch.Tensor | None,
    save_inverse: torch.Tensor | None, training: bool, epsilon: float, mask: Sequence[bool],
    reserve: torch.Tensor,
) -> Any:
    return _batch_norm_backward(
        call, gradient, x, weight, mean, variance, save_mean, save_inverse, training, epsilon, mask
    )


@aten("native_batch_norm_backward.default", of=_BATCH, gradient=True, rounding=_PLACES)
def _batch_norm_backward(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None,
    mean: torch.Tensor | None, variance: torch.Tensor | None, save_mean: torch.Tensor | None,
    save_inverse: torch.Tensor | None, training: bool, epsilon: float, mask: Sequence[bool],
) -> Any:
    if not x.numel():
        return NotImplemented
    device = call.device
    g, a, w = _read(call, gradient, x, weight)
    slopes, images = _channels_last(g), _channels_last(a)
    gamma, _ = _scale(call, w, None, images.shape[-1], a.format)
    if training:
        saved = _saved(call, save_inverse, g.format)
        if saved is None or saved[0].shape != images.shape:
            statistics = batch_statistics(device, images, epsilon, stable=True)
            saved = saved_of(device, statistics, gamma)
        to_x = ops.batch_norm.vjps[0](device, slopes, saved) if mask[0] else None  # type: ignore[misc]
    else:
        statistics = _known_statistics(call, images, mean, variance, epsilon)
        saved = saved_of(device, statistics, gamma)
        to_x = ops.normalise.vjps[0](device, slopes, saved) if mask[0] else None  # type: ignore[misc]
    to_w, to_b = (
        vjp(device, slopes, saved) if wanted else None  # type: ignore[misc]
        for vjp, wanted in zip(ops.batch_norm.vjps[1:], mask[1:], strict=True)
    )
    return (
        None if to_x is None else call.result(_channels_first(to_x)),
        *(None if slope is None else _slope(call, slope, weight) for slope in (to_w, to_b)),
    )


def _mean(call: Call, x: Array, axes: tuple[int, ...]) -> Array:
    """The mean, which torch returns beside the result and no rule of ours reads."""
    with call.device.rounding(False):
        return ops.reduce_mean.value(call.device, x, axis=axes, keepdims=True)


# Layer norm -----------------------------------------------------------------------------------


@aten("native_layer_norm.default", of=ops.layer_norm, rounding=_PLACES)
def _layer_norm(
    call: Call, x: torch.Tensor, shape: Sequence[int], weight: torch.Tensor | None,
    bias: torch.Tensor | None, epsilon: float,
) -> Any:
    if not x.numel():
        return NotImplemented
    a, w, b = _read(call, x, weight, bias)
    n = math.prod(shape)
    rows = a.reshape(-1, n)
    w, b = (None if p is None else p.reshape(-1) for p in (w, b))
    gamma, beta = _scale(call, w, b, n, a.format)
    y, saved = ops.layer_norm.forward(call.device, rows, gamma, beta, epsilon=epsilon, stable=True)
    outer = [*x.shape[: x.ndim - len(shape)], *[1] * len(shape)]
    inverse = call.result(saved[2].reshape(outer))
    call.memory.save(inverse, saved)
    mean = _mean(call, rows, (1,)).reshape(outer)
    return call.result(y.reshape(a.shape)), call.result(mean), inverse


@aten("native_layer_norm_backward.default", of=ops.layer_norm, gradient=True)
def _layer_norm_backward(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, shape: Sequence[int], mean: torch.Tensor,
    inverse: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
    mask: Sequence[bool],
) -> Any:
    device, g = call.device, call.array(gradient)
    saved = _saved(call, inverse, g.format)
    if not x.numel() or saved is None:
        return NotImplemented
    rows = g.reshape(-1, math.prod(shape))
    vjps = ops.layer_norm.vjps
    to_x, to_w, to_b = (
        vjp(device, rows, saved) if wanted else None  # type: ignore[misc]
        for vjp, wanted in zip(vjps, mask, strict=True)
    )
    return (
        None if to_x is None else call.result(to_x.reshape(tuple(x.shape))),
        *(
            None if slope is None else _slope(call, slope.reshape(tuple(shape)), weight)
            for slope in (to_w, to_b)
        ),
    )


# Group norm -----------------------------------------------------------------------------------


@aten("native_group_norm.default", of=ops.group_norm, rounding=_PLACES)
def _group_norm(
    call: Call, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, n: int,
    channels: int, positions: int, groups: int, epsilon: float,
) -> Any:
    if not x.numel():
        return NotImplemented
    a, w, b = _read(call, x, weight, bias)
    images = _channels_last(a.reshape(n, channels, positions))
    gamma, beta = _scale(call, w, b, channels, a.format)
    y, saved = ops.group_norm.forward(
        call.device, images, gamma, beta, groups=groups, strided=False, epsilon=epsilon,
        stable=True,
    )
    inverse = call.result(saved[2].reshape(n, groups))
    call.memory.save(inverse, saved)
    mean = _mean(call, a.reshape(n, groups, -1), (2,)).reshape(n, groups)
    return call.result(_channels_first(y).reshape(a.shape)), call.result(mean), inverse


@aten("native_group_norm_backward.default", of=ops.group_norm, gradient=True)
def _group_norm_backward(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, inverse: torch.Tensor,
    weight: torch.Tensor | None, n: int, channels: int, positions: int, groups: int,
    mask: Sequence[bool],
) -> Any:
    device, g = call.device, call.array(gradient)
    saved = _saved(call, inverse, g.format)
    if not x.numel() or saved is None:
        return NotImplemented
    slopes = _channels_last(g.reshape(n, channels, positions))
    to_x, to_w, to_b = ops.group_norm.vjps
    x_slope = w_slope = b_slope = None
    if mask[0]:
        images = to_x(device, slopes, saved, groups=groups, strided=False)  # type: ignore[misc]
        x_slope = call.result(_channels_first(images).reshape(g.shape))
    if mask[1]:
        w_slope = _slope(call, to_w(device, slopes, saved), weight)  # type: ignore[misc]
    if mask[2]:
        b_slope = _slope(call, to_b(device, slopes, saved), weight)  # type: ignore[misc]
    return x_slope, w_slope, b_slope


# Weight norm ----------------------------------------------------------------------------------


@aten("_weight_norm_interface.default", of=ops.weight_norm)
def _weight_norm(call: Call, v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> tuple[Any, Any]:
    a, b = call.arrays(v, g)
    w, (norms,) = ops.weight_norm.forward(call.device, a, b, dim=dim)
    return call.result(w), call.rounded(norms.reshape(g.shape), a.format)


@aten("_weight_norm_interface_backward.default", of=ops.weight_norm, rounding=_INSIDE)
def _weight_norm_backward(
    call: Call, gradient: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norms: torch.Tensor,
    dim: int,
) -> tuple[Any, Any]:
    slope, a, b, n = (call.wide(x) for x in call.arrays(gradient, v, g, norms))
    fmt = call.format_of(gradient, v, g, norms)
    to_v, to_g = weight_norm_gradients(call.device, slope, a, b, n, dim)
    return call.rounded(to_v, fmt), call.rounded(to_g.reshape(g.shape), fmt)
