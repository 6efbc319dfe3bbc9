"""Activations: rectifiers, sigmoids, curves of exponentials and logarithms, gates, dropout.

Curves compute in binary32 inside and are rounded once (`ipu.ops.curves`): elu and its relatives,
softplus, mish, silu, gelu by the error function. What a rectifier selects is not rounded.

gelu is a composite of operations in the format of x, each rounded once: x · Phi with
Phi = (1 + tanh(x · sqrt(2/pi) · (1 + 0.044715 x²))) / 2. Its square saturates, as on the machine:
overflow neither traps nor becomes NaN there.

Source    poplibs, NonLinearityDef.hpp (formulas), NonLinearity1D_gelu.S (control bits), poprand
          (dropout: the mask, then the scale).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.core import Operand
from fpsim.records.evidence import Evidence
from ipu.machine.derived import derived
from ipu.machine.device import Device
from ipu.machine.reference import wide
from ipu.ops import in_binary64
from ipu.ops.bounds import clamp, number_of
from ipu.ops.curves import INSIDE, curve, rounded_curve, selected, sloped
from ipu.ops.functions import expm1, log1p
from ipu.ops.in_one_call import in_one_call
from ipu.ops.primitive import Primitive
from ipu.ops.rules import Saved, steps
from ipu.ops.saved import positive_keys
from ipu.ops.tabulated import Function

__all__ = [
    "dropout", "elu", "gelu", "gelu_erf", "glu", "hard_shrink", "hard_tanh", "leaky_relu",
    "log_sigmoid", "masked_scale", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "softplus",
    "softsign", "tanh", "threshold",
]

#: sqrt(2 / pi) and the cubic's coefficient, as poplibs writes them.
_SLOPE, _CUBIC = 0.7978845608, 0.044715


def _relu(device: Device, x: Array) -> tuple[Array, Saved]:
    y = device.relu(x)
    return y, (y,)


def _relu_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.select_positive(*positive_keys(saved, 0), gradient)


def _tanh(device: Device, x: Array) -> tuple[Array, Saved]:
    y = device.tanh(x)
    return y, (y,)


def _tanh_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """gradient · (1 - y²)."""
    (y,) = saved
    return device.multiply(gradient, device.subtract(1.0, device.multiply(y, y)))


def _sigmoid(device: Device, x: Array) -> tuple[Array, Saved]:
    y = device.sigmoid(x)
    return y, (y,)


def _sigmoid_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """gradient · (y · (1 - y))."""
    (y,) = saved
    return device.multiply(gradient, device.multiply(y, device.subtract(1.0, y)))


@contextmanager
def _saturating(device: Device) -> Iterator[None]:
    """NANOO and OFLO are off: overflow gives the largest value and stops nothing."""
    before = device.control
    device.control = replace(before, nanoo=False, oflo=False)
    try:
        yield
    finally:
        device.control = before


@in_binary64.by(partial(in_binary64.gelu, slope=_SLOPE, cubic=_CUBIC))
@in_one_call
def _gelu(device: Device, x: Array) -> tuple[Array, Saved]:
    with _saturating(device):
        square = device.multiply(x, x)
        bend = device.add(device.multiply(square, _CUBIC), 1.0)
        t = device.tanh(device.multiply(device.multiply(x, _SLOPE), bend))
        share = device.multiply(device.add(t, 1.0), 0.5)
        return device.multiply(x, share), (x, t)


@in_binary64.by(partial(in_binary64.gelu_x, slope=_SLOPE, cubic=_CUBIC))
@in_one_call
def _gelu_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """gradient · (Phi + x (1 - t²) / 2 · sqrt(2/pi) (1 + 3 · 0.044715 x²))."""
    x, t = saved
    with _saturating(device):
        square = device.multiply(x, x)
        bend = device.add(device.multiply(square, 3 * _CUBIC), 1.0)
        fall = device.multiply(device.subtract(1.0, device.multiply(t, t)), _SLOPE / 2)
        rise = device.multiply(device.multiply(x, fall), bend)
        share = device.multiply(device.add(t, 1.0), 0.5)
        return device.multiply(gradient, device.add(share, rise))


def _masked_scale(
    device: Device, x: Array, *, mask: NDArray[np.bool_], factor: Operand
) -> tuple[Array, Saved]:
    return device.multiply(device.select(mask, x), factor), ()


def _masked_scale_x(
    device: Device, gradient: Array, saved: Saved, *, mask: NDArray[np.bool_], factor: Operand
) -> Array:
    return device.multiply(device.select(mask, gradient), factor)


def _dropout(device: Device, x: Array, *, keep: float) -> tuple[Array, Saved]:
    if not 0 < keep <= 1:
        raise ValueError(
            f"keep={keep} is not a probability of keeping; use more than 0 and at most 1"
        )
    mask = device.random_mask(x.shape, keep)
    return _masked_scale(device, x, mask=mask, factor=1 / keep)[0], (mask,)


def _dropout_x(device: Device, gradient: Array, saved: Saved, *, keep: float) -> Array:
    return _masked_scale_x(device, gradient, (), mask=saved[0], factor=1 / keep)


# Rectifiers --------------------------------------------------------------------------------------


def _above(device: Device, x: Array, least: Operand) -> NDArray[np.bool_]:
    """Whether a number is above a limit, or a NaN."""
    limit = number_of(least)
    return derived(device, lambda values: ~(values <= limit), x.carrier)


def _threshold(device: Device, x: Array, *, least: Operand = 0.0) -> tuple[Array, Saved]:
    return device.select(_above(device, x, least), x), (x,)


def _threshold_x(
    device: Device, gradient: Array, saved: Saved, *, least: Operand = 0.0, **_: Any
) -> Array:
    """The gradient where x is above `least`, or a NaN."""
    return device.select(_above(device, saved[0], least), gradient)


def _hard_tanh(
    device: Device, x: Array, *, low: Operand = -1.0, high: Operand = 1.0
) -> tuple[Array, Saved]:
    return clamp.value(device, x, low=low, high=high), (x,)


def _hard_tanh_x(
    device: Device, gradient: Array, saved: Saved, *, low: Operand = -1.0, high: Operand = 1.0
) -> Array:
    """The gradient between the limits; 0 at a limit and for a NaN."""
    x = saved[0].carrier
    return device.select((x > number_of(low)) & (x < number_of(high)), gradient)


def _relu6(device: Device, x: Array) -> tuple[Array, Saved]:
    return _hard_tanh(device, x, low=0.0, high=6.0)


def _relu6_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return _hard_tanh_x(device, gradient, saved, low=0.0, high=6.0)


def _hard_shrink(device: Device, x: Array, *, least: Operand = 0.5) -> tuple[Array, Saved]:
    return device.select(~(np.abs(x.carrier) <= number_of(least)), x), (x,)


def _hard_shrink_x(
    device: Device, gradient: Array, saved: Saved, *, least: Operand = 0.5
) -> Array:
    """The gradient where x was taken, or was a NaN."""
    return device.select(~(np.abs(saved[0].carrier) <= number_of(least)), gradient)


def _leaking(device: Device, values: Array, by: Array, slope: Operand) -> Array:
    """Values where `by` is positive, values times the slope elsewhere."""
    positive = by.carrier > 0
    return selected(positive, values, device.multiply(device.select(~positive, values), slope))


def _leaky_relu(device: Device, x: Array, *, slope: Operand = 0.01) -> tuple[Array, Saved]:
    return _leaking(device, x, x, slope), (x,)


def _leaky_relu_x(device: Device, gradient: Array, saved: Saved, *, slope: Operand = 0.01) -> Array:
    return _leaking(device, gradient, saved[0], slope)


# Curves ------------------------------------------------------------------------------------------

_ROOT_HALF, _DENSITY = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)


def _phi(device: Device, x: Array) -> Array:
    """The normal distribution: (1 + erf(x / sqrt(2))) / 2."""
    return device.multiply(device.add(device.erf(device.multiply(x, _ROOT_HALF)), 1.0), 0.5)


def _gelu_erf_of(device: Device, x: Array) -> Array:
    return device.multiply(x, _phi(device, x))


def _gelu_erf_slope(device: Device, x: Array) -> Array:
    bell = device.multiply(device.exp(device.multiply(device.multiply(x, x), -0.5)), _DENSITY)
    return device.add(_phi(device, x), device.multiply(x, bell))


def _silu_of(device: Device, x: Array) -> Array:
    return device.multiply(x, device.sigmoid(x))


def _silu_slope(device: Device, x: Array) -> Array:
    """s · (1 + x · (1 - s))."""
    s = device.sigmoid(x)
    return device.multiply(s, device.add(device.multiply(x, device.subtract(1.0, s)), 1.0))


def softplus_of(device: Device, x: Array) -> Array:
    """log(1 + e**x) = max(x, 0) + log(1 + e**-|x|), in binary32."""
    falling = device.exp(x.like(-np.abs(x.carrier)))
    return device.add(device.relu(x), log1p.value(device, falling))


def _mish_of(device: Device, x: Array) -> Array:
    return device.multiply(x, device.tanh(softplus_of(device, x)))


def _mish_slope(device: Device, x: Array) -> Array:
    """t + x · s · (1 - t · t) with t = tanh(softplus(x)), s = sigmoid(x)."""
    t = device.tanh(softplus_of(device, x))
    bend = device.multiply(device.sigmoid(x), device.subtract(1.0, device.multiply(t, t)))
    return device.add(t, device.multiply(x, bend))


def _log_sigmoid_of(device: Device, x: Array) -> Array:
    return device.negative(softplus_of(device, device.negative(x)))


def _log_sigmoid_slope(device: Device, x: Array) -> Array:
    return device.sigmoid(device.negative(x))


@lru_cache(maxsize=64)
def _softplus_by(beta: float, threshold: float) -> tuple[Function, Function]:
    """The function and its slope; beyond the threshold the function is x."""

    def scaled(device: Device, x: Array) -> Array:
        return x if beta == 1 else device.multiply(x, beta)

    def value(device: Device, x: Array) -> Array:
        inner = scaled(device, x)
        y = softplus_of(device, inner)
        y = y if beta == 1 else device.divide(y, beta)
        return selected(inner.carrier > threshold, x, y)

    def slope(device: Device, x: Array) -> Array:
        inner = scaled(device, x)
        y = device.sigmoid(inner)
        return selected(inner.carrier > threshold, y.like(np.ones_like(y.carrier)), y)

    return value, slope


def _softplus(
    device: Device, x: Array, *, beta: float = 1.0, threshold: float = 20.0
) -> tuple[Array, Saved]:
    return rounded_curve(device, x, _softplus_by(beta, threshold)[0]), (x,)


def _softplus_x(
    device: Device, gradient: Array, saved: Saved, *, beta: float = 1.0, threshold: float = 20.0
) -> Array:
    return sloped(device, gradient, saved[0], _softplus_by(beta, threshold)[1])


def _not_positive(x: Array) -> Array:
    """min(x, 0), +0 for either zero; a NaN passes."""
    return x.like(np.where(x.carrier >= 0, x.carrier.dtype.type(0), x.carrier))


@lru_cache(maxsize=64)
def _elu_by(
    alpha: float, scale: float, input_scale: float = 1.0, of_result: bool = False,
    zero_is_above: bool = False,
) -> tuple[Function, Function]:
    """scale · x above 0, scale · alpha · (e**(x · input_scale) - 1) elsewhere, and its slope.

    zero_is_above    the slope at 0 is that above it; else that below.
    """

    def value(device: Device, x: Array) -> Array:
        low = _not_positive(x)
        y = expm1.value(device, low if input_scale == 1 else device.multiply(low, input_scale))
        if alpha != 1:
            y = device.multiply(y, alpha)
        y = selected(x.carrier > 0, x, y)
        return y if scale == 1 else device.multiply(y, scale)

    def slope(device: Device, x: Array) -> Array:
        low = _not_positive(x)
        if of_result:  # scale · alpha · e**x is the result plus scale · alpha
            y = device.add(low, alpha * scale)
        else:
            low = low if input_scale == 1 else device.multiply(low, input_scale)
            y = device.multiply(device.exp(low), alpha * scale)
        if input_scale != 1:
            y = device.multiply(y, input_scale)
        above = x.carrier >= 0 if zero_is_above else x.carrier > 0
        return selected(above, y.like(np.full_like(y.carrier, scale)), y)

    return value, slope


def _elu(
    device: Device, x: Array, *, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> tuple[Array, Saved]:
    return rounded_curve(device, x, _elu_by(alpha, scale, input_scale)[0]), (x,)


def _elu_x(
    device: Device, gradient: Array, saved: Saved, *, alpha: float = 1.0, scale: float = 1.0,
    input_scale: float = 1.0, of_result: bool = False,
) -> Array:
    """of_result: what was saved is the result, as frameworks keep it."""
    return sloped(device, gradient, saved[0], _elu_by(alpha, scale, input_scale, of_result)[1])


def _selu(device: Device, x: Array) -> tuple[Array, Saved]:
    return _elu(device, x, alpha=SELU_ALPHA, scale=SELU_SCALE)


def _selu_x(device: Device, gradient: Array, saved: Saved, *, of_result: bool = False) -> Array:
    rule = _elu_by(SELU_ALPHA, SELU_SCALE, of_result=of_result, zero_is_above=True)
    return sloped(device, gradient, saved[0], rule[1])


#: The two constants of selu.
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848, 1.0507009873554804934


def _softsign(device: Device, x: Array) -> tuple[Array, Saved]:
    return device.divide(x, _one_plus_size(device, x)), (x,)


def _softsign_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """gradient / (1 + |x|)²."""
    below = _one_plus_size(device, saved[0])
    return device.divide(gradient, device.multiply(below, below))


def _one_plus_size(device: Device, x: Array) -> Array:
    return device.add(x.like(np.abs(x.carrier)), 1.0)


# Gates -------------------------------------------------------------------------------------------


def _glu(device: Device, x: Array, *, axis: int = -1) -> tuple[Array, Saved]:
    values, gate = _halves(device, x, axis)
    return device.cast(device.multiply(values, device.sigmoid(gate)), x.format), (x,)


def _glu_x(device: Device, gradient: Array, saved: Saved, *, axis: int = -1) -> Array:
    """g · s to the values, g · v · s · (1 - s) to the gate."""
    (x,) = saved
    values, gate = _halves(device, x, axis)
    s = device.sigmoid(gate)
    to_values = device.multiply(device.cast(gradient, wide(x.format)), s)
    to_gate = device.multiply(device.multiply(to_values, values), device.subtract(1.0, s))
    both = np.concatenate([to_values.carrier, to_gate.carrier], axis=axis)
    return device.cast(to_values.like(both), x.format)


def _halves(device: Device, x: Array, axis: int) -> list[Array]:
    """Values and gate in binary32."""
    single = device.cast(x, wide(x.format))
    if x.shape[axis] % 2:
        raise ValueError(f"glu halves a dimension of {x.shape[axis]}; make it even")
    return [single.like(np.ascontiguousarray(h)) for h in np.split(single.carrier, 2, axis=axis)]


_EACH = "each operation"
_POPLIBS = "poplibs, NonLinearityDef.hpp"

#: x · factor where the mask is true, 0 elsewhere: what dropout computes.
masked_scale = Primitive(
    "masked_scale", _masked_scale, (_masked_scale_x,), cost=steps(select=1, multiply=1),
    rounding="the product with the factor", gradient="the product with the factor",
)
#: max(x, 0); NaN passes.
relu = Primitive(
    "relu", _relu, (_relu_x,), verb="relu", cost=steps(relu=1), rounding="none", gradient="none"
)
#: x above `least`, +0 elsewhere; a NaN passes, and so does its gradient.
threshold = Primitive(
    "threshold", _threshold, (_threshold_x,), cost=steps(select=1), rounding="none",
    gradient="none",
)
#: x above `least` in size, +0 elsewhere; a NaN passes, and so does its gradient.
hard_shrink = Primitive(
    "hard_shrink", _hard_shrink, (_hard_shrink_x,), cost=steps(select=1), rounding="none",
    gradient="none",
)
#: min(max(x, low), high), with no gradient at the limits, where `clamp` has one.
hard_tanh = Primitive(
    "hard_tanh", _hard_tanh, (_hard_tanh_x,), cost=steps(maximum=2), rounding="none",
    gradient="none",
)
#: min(max(x, 0), 6).
relu6 = Primitive(
    "relu6", _relu6, (_relu6_x,), cost=steps(maximum=2), rounding="none", gradient="none"
)
#: x above 0, `slope` · x elsewhere.
leaky_relu = Primitive(
    "leaky_relu", _leaky_relu, (_leaky_relu_x,), cost=steps(select=1, multiply=1),
    rounding="the product, where x is not above 0", gradient="the product, where x is not above 0",
)
#: The hyperbolic tangent.
tanh = Primitive(
    "tanh", _tanh, (_tanh_x,), verb="tanh", cost=steps(tanh=1), rounding="once",
    gradient="each operation of g · (1 - y · y)", source=_POPLIBS,
)
#: 1 / (1 + exp(-x)).
sigmoid = Primitive(
    "sigmoid", _sigmoid, (_sigmoid_x,), verb="sigmoid", cost=steps(sigmoid=1), rounding="once",
    gradient="each operation of g · (y · (1 - y))", source=_POPLIBS,
)
#: x · Phi(x), Phi by tanh.
gelu = Primitive(
    "gelu", _gelu, (_gelu_x,), cost=steps(multiply=6, add=2, tanh=1), rounding=_EACH,
    gradient=_EACH, evidence=Evidence.DOCUMENTED, source=_POPLIBS,
)
#: x · Phi(x), Phi by the error function.
gelu_erf = curve("gelu_erf", _gelu_erf_of, _gelu_erf_slope, multiply=3, add=1, tanh=1)
#: x · sigmoid(x).
silu = curve("silu", _silu_of, _silu_slope, multiply=1, sigmoid=1)
#: x · tanh(softplus(x)).
mish = curve("mish", _mish_of, _mish_slope, multiply=2, tanh=1, exp=1, log=1, add=2, divide=1)
#: log(sigmoid(x)).
log_sigmoid = curve(
    "log_sigmoid", _log_sigmoid_of, _log_sigmoid_slope, multiply=1, exp=1, log=1, add=2, divide=1
)
#: log(1 + e**(beta x)) / beta; x where beta x is above `threshold`.
softplus = Primitive(
    "softplus", _softplus, (_softplus_x,),
    cost=steps({"multiply": 1, "exp": 1, "log": 1, "add": 2}, cast=2),
    rounding=INSIDE, gradient=INSIDE,
)
#: scale · x above 0, scale · alpha · (e**(x · input_scale) - 1) elsewhere.
elu = Primitive(
    "elu", _elu, (_elu_x,),
    cost=steps({"multiply": 2, "exp": 1, "log": 1, "subtract": 1}, cast=2),
    rounding=INSIDE, gradient=INSIDE,
)
#: elu with the two constants that keep mean and variance.
selu = Primitive(
    "selu", _selu, (_selu_x,),
    cost=steps({"multiply": 2, "exp": 1, "log": 1, "subtract": 1}, cast=2),
    rounding=INSIDE, gradient=INSIDE,
)
#: x / (1 + |x|).
softsign = Primitive(
    "softsign", _softsign, (_softsign_x,), cost=steps(add=1, divide=1), rounding=_EACH,
    gradient="1 + |x|, its square, then the quotient",
)
#: The first half along `axis` times the sigmoid of the second.
glu = Primitive(
    "glu", _glu, (_glu_x,), cost=steps({"multiply": 1, "sigmoid": 1}, cast=2),
    rounding=INSIDE, gradient=INSIDE,
)
#: x / keep with probability `keep`, else 0; the backward rule has the same mask.
dropout = Primitive(
    "dropout", _dropout, (_dropout_x,), cost=steps(select=1, multiply=1),
    rounding="the product with 1 / keep", gradient="the product with 1 / keep",
)
