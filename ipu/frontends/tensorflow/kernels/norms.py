"""Batch norm by the rules of `ipu.ops`.

The third reserve of a node goes to its gradient alone: it holds what the rule's forward pass saved.
TensorFlow's variance for the moving average is the unbiased one, times N/(N-1) in binary32. A node
with a factor f other than 1 averages itself: (1 - f) old + f new, each operation in binary32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu import ops
from ipu.frontends.tensorflow.kernels.products import has_channels_first
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, gradient_rule, kernel
from ipu.machine.device import Device
from ipu.ops.norms import batch_statistics, inverse_deviation

__all__: list[str] = []

_RULE = "as the rule of ipu.learn: statistics in binary32, each operation after that"
#: Rows of a node, in training and after it.
_ROWS = (ops.batch_norm, ops.normalise)


@kernel("FusedBatchNormV3", of=_ROWS, rounding=_RULE, keeps=True)
def _batch_norm(site: NodeSite) -> Run:
    epsilon = float(site.attr("epsilon"))
    run = _trained(site, epsilon) if site.attr("is_training") else _untrained(site, epsilon)
    if not has_channels_first(site):
        return run

    def turned(x: Array, *others: Array) -> tuple[Any, ...]:
        y, *rest = run(_turned(x, _TO_LAST), *others)
        return _turned(y, _TO_FIRST), *rest

    return turned


#: Layer norm of Keras has its rows as channels, which it puts first.
_TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def _turned(x: Array, order: tuple[int, ...]) -> Array:
    return x.like(np.ascontiguousarray(x.carrier.transpose(order)))


def _trained(site: NodeSite, epsilon: float) -> Run:
    device, stable = site.device, site.machine.stable_norms
    factor = float(site.attr("exponential_avg_factor"))

    def run(x: Array, scale: Array, offset: Array, *before: Array) -> tuple[Any, ...]:
        x, gamma, beta = _alike(site, x, scale, offset)
        statistics = batch_statistics(device, x, epsilon, stable)
        y, saved = ops.batch_norm.forward(device, x, gamma, beta, statistics=statistics)
        mean = device.cast(statistics.mean, BINARY32).reshape(-1)
        variance = statistics.variance.reshape(-1)
        spread = ops.unbiased.value(device, variance, n=x.size // x.shape[-1])
        averages = [mean, spread]
        if factor != 1:
            averages = [
                _averaged(device, factor, old, new)
                for old, new in zip(before, averages, strict=True)
            ]
        return y, *averages, mean, variance, (True, saved)

    return run


def _averaged(device: Device, factor: float, old: Array, new: Array) -> Array:
    """A moving average in binary32."""
    wide = device.cast(old, BINARY32)
    return ops.moving_average.value(device, wide, new, rest=1 - factor, share=factor)


def _untrained(site: NodeSite, epsilon: float) -> Run:
    device = site.device

    def run(x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> tuple[Any, ...]:
        x, gamma, beta = _alike(site, x, scale, offset)
        inverse = device.cast(
            inverse_deviation(device, device.cast(variance, BINARY32), epsilon), x.format
        )
        centre = device.cast(mean, x.format)
        y, saved = ops.normalise.forward(device, x, gamma, beta, mean=centre, inverse=inverse)
        return y, mean, variance, mean, variance, (False, saved)

    return run


def _alike(site: NodeSite, x: Array, *others: Array) -> list[Array]:
    """x in the node's format, the others in that of x."""
    fmt = site.fmt
    assert fmt is not None
    return [site.device.cast(array, fmt) for array in (x, *others)]


@kernel("FusedBatchNormGradV3", of=_ROWS, gradient=True, rounding=_RULE, keeps=True)
def _batch_norm_gradient(site: NodeSite) -> Run:
    device, is_turned = site.device, has_channels_first(site)

    def run(
        gradient: Array, x: Array, scale: Array, _1: Array, _2: Array, reserve: Any
    ) -> tuple[Any, ...]:
        gradient = _turned(gradient, _TO_LAST) if is_turned else gradient
        is_trained, saved = reserve
        primitive = ops.batch_norm if is_trained else ops.normalise
        rules = [gradient_rule(primitive, argument) for argument in range(3)]
        gradient = device.cast(gradient, saved[0].format)
        to_x, to_scale, to_offset = (rule(device, gradient, saved) for rule in rules)
        to_x = _turned(to_x, _TO_FIRST) if is_turned else to_x
        none = device.zeros((0,), BINARY32)
        wide = (device.cast(slope, scale.format) for slope in (to_scale, to_offset))
        return (to_x, *wide, none, none)

    return run
