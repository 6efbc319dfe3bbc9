"""Activations beside those of `ipu.learn`, and the two functions near 1 that they need.

log(1 + x) and exp(x) - 1 follow Kahan's formulas with u = 1 + x and u = exp(x): every operation in
binary32, so that small x keep their digits. The machine's own last digit is unknown (ASSUMED).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu.frontends.tensorflow.kernels.table import Run, Site, kernel
from ipu.machine.device import Device

__all__: list[str] = []

_INSIDE = "each operation in binary32, once at the end"


def _chosen(where: Any, x: Array, y: Array) -> Array:
    return x.like(np.where(where, x.carrier, y.carrier))


def _quotient(device: Device, usable: Any, x: Array, y: Array, otherwise: Array) -> Array:
    """x / y where usable, without a flag elsewhere."""
    one = y.like(np.ones_like(y.carrier))
    numerator, denominator = _chosen(usable, x, one), _chosen(usable, y, one)
    return _chosen(usable, device.divide(numerator, denominator), otherwise)


def _log1p(device: Device, x: Array) -> Array:
    """log(1 + x) = x log(u) / (u - 1); x where u is 1, log(u) where x is not finite or is -1."""
    u = device.add(x, 1.0)
    log, gap = device.log(u), device.subtract(u, 1.0)
    usable = (u.carrier != 1) & np.isfinite(log.carrier)
    none = gap.like(np.zeros_like(gap.carrier))
    product = device.multiply(_chosen(usable, log, none), _chosen(usable, x, none))
    return _quotient(device, usable, product, gap, _chosen(u.carrier == 1, x, log))


def _expm1(device: Device, x: Array) -> Array:
    """exp(x) - 1 = x (u - 1) / log(u); x where u is 1, u - 1 where u is 0 or not finite."""
    u = device.exp(x)
    gap = device.subtract(u, 1.0)
    usable = (u.carrier != 1) & (u.carrier != 0) & np.isfinite(u.carrier)
    none = gap.like(np.zeros_like(gap.carrier))
    log = device.log(_chosen(usable, u, none.like(np.ones_like(none.carrier))))
    product = device.multiply(_chosen(usable, gap, none), _chosen(usable, x, none))
    return _quotient(device, usable, product, log, _chosen(u.carrier == 1, x, gap))


def _softplus(device: Device, x: Array) -> Array:
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))."""
    falling = device.exp(x.like(-np.abs(x.carrier)))
    return device.add(device.relu(x), _log1p(device, falling))


def _elu(device: Device, x: Array) -> Array:
    positive = x.carrier > 0
    below = _chosen(positive, x.like(np.zeros_like(x.carrier)), x)
    return _chosen(positive, x, _expm1(device, below))


def _wide(node: str, function: Callable[[Device, Array], Array]) -> None:
    @kernel(node, rounding=_INSIDE)
    def build(site: Site) -> Run:
        device = site.device
        return lambda x: device.cast(function(device, device.cast(x, BINARY32)), x.format)


for _node, _function in (
    ("Log1p", _log1p), ("Expm1", _expm1), ("Softplus", _softplus), ("Elu", _elu),
):  # fmt: skip
    _wide(_node, _function)


@kernel("EluGrad", rounding="the result + 1, then the product")
def _elu_gradient(site: Site) -> Run:
    device = site.device

    def run(gradient: Array, outputs: Array) -> Array:
        below = device.multiply(device.add(outputs, 1.0), gradient)
        return _chosen(outputs.carrier < 0, below, gradient)

    return run


@kernel("Relu6", rounding="none")
def _relu6(site: Site) -> Run:
    device = site.device

    def run(x: Array) -> Array:
        y = device.relu(x)
        return y.like(np.minimum(y.carrier, y.carrier.dtype.type(6)))

    return run


@kernel("Relu6Grad", rounding="none")
def _relu6_gradient(site: Site) -> Run:
    select = site.device.select
    return lambda gradient, x: select((x.carrier > 0) & (x.carrier < 6), gradient)


@kernel("LeakyRelu", rounding="the product, where x is not above 0")
def _leaky_relu(site: Site) -> Run:
    device, slope = site.device, site.constant(site.attr("alpha"))
    return lambda x: _chosen(x.carrier > 0, x, device.multiply(x, slope))


@kernel("LeakyReluGrad", rounding="the product, where x is not above 0")
def _leaky_relu_gradient(site: Site) -> Run:
    device, slope = site.device, site.constant(site.attr("alpha"))
    return lambda gradient, x: _chosen(x.carrier > 0, gradient, device.multiply(gradient, slope))
