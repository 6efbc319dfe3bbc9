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

__all__ = ["log1p"]

_INSIDE = "each operation in binary32, once at the end"


def _chosen(where: Any, x: Array, y: Array) -> Array:
    return x.like(np.where(where, x.carrier, y.carrier))


def _quotient(device: Device, usable: Any, x: Array, y: Array, otherwise: Array) -> Array:
    """x / y where usable, without a flag elsewhere."""
    one = y.like(np.ones_like(y.carrier))
    numerator, denominator = _chosen(usable, x, one), _chosen(usable, y, one)
    return _chosen(usable, device.divide(numerator, denominator), otherwise)


def log1p(device: Device, x: Array) -> Array:
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
    return device.add(device.relu(x), log1p(device, falling))


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
    ("Log1p", log1p), ("Expm1", _expm1), ("Softplus", _softplus), ("Elu", _elu),
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


# Softsign and selu --------------------------------------------------------------------------------


def _one_plus_size(device: Device, x: Array) -> Array:
    return device.add(x.like(np.abs(x.carrier)), 1.0)


@kernel("Softsign", rounding="1 + |x|, then the quotient")
def _softsign(site: Site) -> Run:
    device = site.device
    return lambda x: device.divide(x, _one_plus_size(device, x))


@kernel("SoftsignGrad", rounding="1 + |x|, its square, then the quotient")
def _softsign_gradient(site: Site) -> Run:
    device = site.device

    def run(gradient: Array, x: Array) -> Array:
        below = _one_plus_size(device, x)
        return device.divide(gradient, device.multiply(below, below))

    return run


#: Scale of selu, and scale times alpha.
_SCALE, _SCALED_ALPHA = 1.0507009873554805, 1.7580993408473768


@kernel("Selu", rounding=_INSIDE)
def _selu(site: Site) -> Run:
    device = site.device

    def run(x: Array) -> Array:
        wide = device.cast(x, BINARY32)
        positive = wide.carrier > 0
        curve = device.multiply(_elu(device, wide), _SCALED_ALPHA)
        result = _chosen(positive, device.multiply(wide, _SCALE), curve)
        return device.cast(result, x.format)

    return run


@kernel("SeluGrad", rounding="the sum and the product of each side")
def _selu_gradient(site: Site) -> Run:
    device, scale, bend = site.device, site.constant(_SCALE), site.constant(_SCALED_ALPHA)

    def run(gradient: Array, outputs: Array) -> Array:
        below = device.multiply(device.add(outputs, bend), gradient)
        return _chosen(outputs.carrier < 0, below, device.multiply(gradient, scale))

    return run
