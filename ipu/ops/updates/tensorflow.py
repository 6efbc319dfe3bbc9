"""TensorFlow's updates, as XLA compiles them for a device; Keras' momentum is one of them.

All operands are of one format; numbers become constants of it. A reciprocal root of the source is a
root and a division here.

Source    TensorFlow, compiler/tf2xla/kernels/training_ops.cc; core/kernels/training_ops.cc for
          AMSGrad, which tf2xla lacks.
"""

from __future__ import annotations

from collections.abc import Callable

from fpsim.array import Array
from ipu.machine.device import Device
from ipu.ops.arithmetic import absolute
from ipu.ops.bounds import minimum
from ipu.ops.functions import power as power_of
from ipu.ops.in_binary64 import by
from ipu.ops.updates import in_binary64
from ipu.ops.updates.row import Number, Slots, Updated, UpdateRow

__all__ = ["ROWS", "lowered", "velocity_step"]


def lowered(
    device: Device, w: Array, change: Array, slots: tuple[Array, ...], direction: Array
) -> Updated:
    """The variable less a change."""
    return Updated(device.subtract(w, change), slots, change, direction)


def _rest(device: Device, g: Array, share: Number) -> Array:
    """1 - share, rounded."""
    return device.subtract(device.context(g.format).constant(1.0), share)


def _constant(device: Device, g: Array, number: Number) -> Array:
    """A number of the optimiser in the update's format."""
    if isinstance(number, Array):
        return number
    return device.context(g.format).constant(number)


def _mean(device: Device, mean: Array, fresh: Array, share: Number, rest: Number) -> Array:
    """share · mean + rest · fresh."""
    return device.add(device.multiply(mean, share), device.multiply(fresh, rest))


def _descent(device: Device, w: Array, g: Array, slots: Slots, *, rate: Number) -> Updated:
    return lowered(device, w, device.multiply(g, rate), (), g)


def _momentum(
    device: Device, w: Array, g: Array, slots: Slots, *, rate: Number,
    momentum: Number, nesterov: bool = False,
) -> Updated:
    v = device.add(device.multiply(slots[0], momentum), g)
    change = velocity_step(device, g, v, rate, momentum, nesterov=nesterov)
    return lowered(device, w, change, (v,), v)


def velocity_step(
    device: Device, g: Array, v: Array, rate: Number, momentum: Number, *, nesterov: bool
) -> Array:
    """The change of a variable by its velocity."""
    change = device.multiply(v, rate)
    if nesterov:
        ahead = device.multiply(device.multiply(v, momentum), rate)
        change = device.add(device.multiply(g, rate), ahead)
    return change


def _keras_momentum(
    device: Device, w: Array, g: Array, slots: Slots, *, rate: Number,
    momentum: Number, nesterov: bool = False,
) -> Updated:
    step = device.multiply(g, rate)
    v = device.subtract(device.multiply(slots[0], momentum), step)
    change = device.subtract(device.multiply(v, momentum), step) if nesterov else v
    return Updated(device.add(w, change), (v,), change)


def _moments(
    device: Device, g: Array, m: Array, v: Array, rest1: Number, rest2: Number
) -> tuple[Array, Array]:
    """Means that move by a share of their distance."""
    m = device.add(m, device.multiply(device.subtract(g, m), rest1))
    square = device.multiply(g, g)
    return m, device.add(v, device.multiply(device.subtract(square, v), rest2))


def _alpha(device: Device, g: Array, rate: Number, power1: Number, power2: Number) -> Array:
    """The learning rate, corrected for the moments' start at zero."""
    left1, left2 = _rest(device, g, power1), _rest(device, g, power2)
    return device.divide(device.multiply(device.sqrt(left2), rate), left1)


@by(in_binary64.adam)
def _adam(
    device: Device, w: Array, g: Array, slots: Slots, *, power1: Number,
    power2: Number, rate: Number, beta1: Number, beta2: Number, epsilon: Number,
    nesterov: bool = False,
) -> Updated:
    rest1, rest2 = _rest(device, g, beta1), _rest(device, g, beta2)
    alpha = _alpha(device, g, rate, power1, power2)
    m, v = slots
    m, v = _moments(device, g, m, v, rest1, rest2)
    root = device.add(device.sqrt(v), epsilon)
    first = _mean(device, m, g, beta1, rest1) if nesterov else m
    change = device.divide(device.multiply(first, alpha), root)
    return lowered(device, w, change, (m, v), m)


def _amsgrad(
    device: Device, w: Array, g: Array, slots: Slots, *, power1: Number,
    power2: Number, rate: Number, beta1: Number, beta2: Number, epsilon: Number,
) -> Updated:
    m, v, largest = slots
    alpha = _alpha(device, g, rate, power1, power2)
    m, v = _moments(device, g, m, v, _rest(device, g, beta1), _rest(device, g, beta2))
    largest = device.maximum(largest, v)
    root = device.add(device.sqrt(largest), epsilon)
    change = device.divide(device.multiply(m, alpha), root)
    return lowered(device, w, change, (m, v, largest), m)


def _adamax(
    device: Device, w: Array, g: Array, slots: Slots, *, power1: Number, rate: Number,
    beta1: Number, beta2: Number, epsilon: Number,
) -> Updated:
    m, v = slots
    m = _mean(device, m, g, beta1, _rest(device, g, beta1))
    v = device.maximum(device.multiply(v, beta2), absolute.value(device, g))
    alpha = device.divide(rate, _rest(device, g, power1))
    change = device.multiply(alpha, device.divide(m, device.add(v, epsilon)))
    return lowered(device, w, change, (m, v), m)


def _rms_prop(
    device: Device, w: Array, g: Array, slots: Slots, *, rate: Number, rho: Number,
    momentum: Number, epsilon: Number, in_root: bool = True,
) -> Updated:
    ms, v = slots
    fresh = device.multiply(device.multiply(g, g), _rest(device, g, rho))
    ms = device.add(fresh, device.multiply(ms, rho))
    if in_root:
        divisor = device.sqrt(device.add(ms, epsilon))
    else:
        divisor = device.add(device.sqrt(ms), epsilon)
    v = _sped(device, g, v, rate, momentum, divisor)
    return lowered(device, w, v, (ms, v), g)


def _sped(
    device: Device, g: Array, v: Array, rate: Number, momentum: Number, divisor: Array
) -> Array:
    """The velocity of RMSProp."""
    step = device.divide(device.multiply(g, rate), divisor)
    return device.add(device.multiply(v, momentum), step)


def _centred_rms_prop(
    device: Device, w: Array, g: Array, slots: Slots, *, rate: Number, rho: Number,
    momentum: Number, epsilon: Number,
) -> Updated:
    mg, ms, v = slots
    rest = _rest(device, g, rho)
    fresh = device.multiply(device.multiply(g, g), rest)
    ms = device.add(fresh, device.multiply(ms, rho))
    mg = device.add(device.multiply(g, rest), device.multiply(mg, rho))
    spread = device.subtract(ms, device.multiply(mg, mg))
    v = _sped(device, g, v, rate, momentum, device.sqrt(device.add(spread, epsilon)))
    return lowered(device, w, v, (mg, ms, v), g)


def _adagrad(
    device: Device, w: Array, g: Array, slots: Slots, *, rate: Number,
    epsilon: Number | None = None, grows: bool = True,
) -> Updated:
    total = device.add(slots[0], device.multiply(g, g)) if grows else slots[0]
    root = device.sqrt(total)
    if epsilon is not None:
        root = device.add(root, epsilon)
    change = device.divide(device.multiply(g, rate), root)
    return lowered(device, w, change, (total,), g)


def _adadelta(
    device: Device, w: Array, g: Array, slots: Slots, *, rate: Number, rho: Number,
    epsilon: Number,
) -> Updated:
    squares, moves = slots
    rest = _rest(device, g, rho)
    squares = _mean(device, squares, device.multiply(g, g), rho, rest)
    root, divisor = (device.sqrt(device.add(x, epsilon)) for x in (moves, squares))
    step = device.multiply(device.divide(root, divisor), g)
    moves = _mean(device, moves, device.multiply(step, step), rho, rest)
    return lowered(device, w, device.multiply(step, rate), (squares, moves), step)


def _ftrl(
    device: Device, w: Array, g: Array, slots: Slots, *, rate: Number, l1: Number,
    l2: Number, power: Number, shrinkage: Number | None = None, by_rate: bool = False,
) -> Updated:
    total, linear = slots
    rate, l1, l2 = (_constant(device, g, number) for number in (rate, l1, l2))
    shrunk = g
    if shrinkage is not None:
        twice = device.multiply(_constant(device, g, shrinkage), 2.0)
        shrunk = device.add(g, device.multiply(twice, w))
    exponent = device.negative(_constant(device, g, power))
    after = device.add(total, device.multiply(g, g))
    grown, before = (power_of.value(device, x, exponent) for x in (after, total))
    if by_rate:  # multiply_linear_by_lr: linear is kept times the rate
        shrunk = device.multiply(shrunk, rate)
        growth = device.subtract(grown, before)
        limit, quadratic = device.multiply(l1, rate), device.multiply(l2, rate)
    else:
        growth = device.divide(device.subtract(grown, before), rate)
        limit, quadratic = l1, l2
        grown = device.divide(grown, rate)
    linear = device.subtract(device.add(linear, shrunk), device.multiply(growth, w))
    clipped = device.maximum(minimum.value(device, linear, limit), device.negative(limit))
    quadratic = device.add(grown, device.multiply(quadratic, 2.0))
    value = device.divide(device.subtract(clipped, linear), quadratic)
    return Updated(value, (after, linear))



def _row(
    name: str, equation: Callable[..., Updated], slots: tuple[str, ...], rounding: str, node: str,
    file: str = "compiler/tf2xla/kernels/training_ops.cc",
) -> UpdateRow:
    return UpdateRow(
        f"tensorflow {name}", equation, slots, rounding, f"TensorFlow, {file}, {node}"
    )


#: TensorFlow's equations.
ROWS = (
    _row("descent", _descent, (), "g·rate", "ResourceApplyGradientDescent"),
    _row("momentum", _momentum, ("momentum",), "v·momentum, v + g, v·rate; with Nesterov "
         "v·momentum, times rate, g·rate, their sum", "ResourceApplyMomentum"),
    _row("keras momentum", _keras_momentum, ("momentum",), "g·rate, v·momentum, the difference; "
         "with Nesterov v·momentum, the difference; w + it", "ResourceApplyKerasMomentum"),
    _row("adam", _adam, ("m", "v"), "1 - each; √(1 - p2)·rate / (1 - p1); m + (g - m)·(1 - b1); "
         "v + (g² - v)·(1 - b2); √v + ε; m·α / it", "ResourceApplyAdam"),
    _row("amsgrad", _amsgrad, ("m", "v", "vhat"), "as adam, the root of the largest v so far",
         "ApplyAdamWithAmsgrad", "core/kernels/training_ops.cc"),
    _row("adamax", _adamax, ("m", "v"), "m·b1 + g·(1 - b1); max(v·b2, |g|); rate / (1 - p1); "
         "m / (v + ε); their product", "ResourceApplyAdaMax"),
    _row("rms prop", _rms_prop, ("rms", "momentum"), "g²·(1 - ρ) + ms·ρ; √(ms + ε); g·rate / it; "
         "v·momentum + it", "ResourceApplyRMSProp"),
    _row("centred rms prop", _centred_rms_prop, ("mg", "rms", "momentum"), "as rms prop, with "
         "√(ms - mg² + ε), mg = g·(1 - ρ) + mg·ρ", "ResourceApplyCenteredRMSProp"),
    _row("adagrad", _adagrad, ("accumulator",), "g², the sum, its root (+ ε), g·rate, the "
         "quotient", "ResourceApplyAdagrad, ResourceApplyAdagradV2"),
    _row("adadelta", _adadelta, ("accum_grad", "accum_var"), "a·ρ + g²·(1 - ρ); √(u + ε) / "
         "√(a + ε)·g; u·ρ + step²·(1 - ρ); step·rate", "ResourceApplyAdadelta"),
    _row("ftrl", _ftrl, ("accumulator", "linear"), "n = a + g²; σ = (n^-p - a^-p) / rate; "
         "z + g - σ·w; (clip(z, ±l1) - z) / (n^-p / rate + 2·l2), which is w",
         "ResourceApplyFtrl, ResourceApplyFtrlV2"),
)
