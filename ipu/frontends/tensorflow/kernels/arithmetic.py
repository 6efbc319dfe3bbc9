"""Sums, products, quotients, roots and functions, element by element; each rounds once."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import tensorflow as tf

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.engine.values import as_read
from ipu.frontends.tensorflow.kernels.activations import log1p
from ipu.frontends.tensorflow.kernels.moving.lists import add_lists
from ipu.frontends.tensorflow.kernels.table import Run, Site, gradient_rule, kernel
from ipu.machine.device import Device

__all__: list[str] = []

_ONCE = "once"


def _verb(node: str, verb: str) -> None:
    @kernel(node, rounding=_ONCE)
    def build(site: Site) -> Run:
        run: Run = getattr(site.device, verb)
        return run


for _node, _name in (
    ("AddV2", "add"), ("Add", "add"), ("Sub", "subtract"), ("Mul", "multiply"),
    ("RealDiv", "divide"), ("Div", "divide"), ("Maximum", "maximum"), ("Sqrt", "sqrt"),
    ("Rsqrt", "rsqrt"), ("Exp", "exp"), ("Log", "log"), ("Tanh", "tanh"), ("Sigmoid", "sigmoid"),
    ("Erf", "erf"), ("Neg", "negative"), ("Relu", "relu"),
):  # fmt: skip
    _verb(_node, _name)


@kernel("Minimum", rounding="none")
def _minimum(site: Site) -> Run:
    device = site.device
    negative = device.negative
    return lambda x, y: negative(device.maximum(negative(x), negative(y)))


@kernel("Abs", rounding="none")
def _abs(site: Site) -> Run:
    return lambda x: x.like(np.abs(x.carrier))


@kernel("Sign", rounding="none")
def _sign(site: Site) -> Run:
    return lambda x: x.like(np.sign(x.carrier))


def _rounded_off(node: str, function: Any) -> None:
    @kernel(node, rounding="none")
    def build(site: Site) -> Run:
        return lambda x: x.like(function(x.carrier))


for _node, _function in (
    ("Floor", np.floor), ("Ceil", np.ceil), ("Rint", np.rint), ("Round", np.rint),
):  # fmt: skip
    _rounded_off(_node, _function)


@kernel("FloorDiv", rounding="the quotient once, then down to an integer")
def _floor_div(site: Site) -> Run:
    divide = site.device.divide

    def run(x: Array, y: Array) -> Array:
        quotient = divide(x, y)
        return quotient.like(np.floor(quotient.carrier))

    return run


@kernel("ClipByValue", rounding="none")
def _clip(site: Site) -> Run:
    device = site.device

    def run(x: Array, low: Array, high: Array) -> Array:
        least = device.maximum(device.negative(x), device.negative(high))
        return device.maximum(device.negative(least), low)

    return run


@kernel("Square", rounding=_ONCE)
def _square(site: Site) -> Run:
    multiply = site.device.multiply
    return lambda x: multiply(x, x)


@kernel("SquaredDifference", rounding="the difference, then the square")
def _squared_difference(site: Site) -> Run:
    device = site.device

    def run(x: Array, y: Array) -> Array:
        gap = device.subtract(x, y)
        return device.multiply(gap, gap)

    return run


@kernel("Reciprocal", "Inv", rounding=_ONCE)
def _reciprocal(site: Site) -> Run:
    divide = site.device.divide
    return lambda x: divide(1.0, x)


@kernel("DivNoNan", "MulNoNan", rounding="once; 0 where y is 0")
def _no_nan(site: Site) -> Run:
    device = site.device
    verb = device.divide if site.node.type == "DivNoNan" else device.multiply

    def run(x: Array, y: Array) -> Array:
        usable = as_read(device, y) != 0
        if usable.all():
            return verb(x, y)
        safe = y.like(np.where(usable, y.carrier, y.carrier.dtype.type(1)))
        result = verb(x, safe)
        return device.select(np.broadcast_to(usable, result.shape), result)

    return run


def _weighted(node: str, verb: str, function: Callable[[Device, Array], Array]) -> None:
    @kernel(node, rounding="the function, then the product or quotient; 0 where x is 0")
    def build(site: Site) -> Run:
        device = site.device
        combine = getattr(device, verb)

        def run(x: Array, y: Array) -> Array:
            used = np.broadcast_to(as_read(device, x) != 0, np.broadcast_shapes(x.shape, y.shape))
            one = y.carrier.dtype.type(1)
            safe = y.like(np.where(used, np.broadcast_to(y.carrier, used.shape), one))
            return device.select(used, combine(x, function(device, safe)))

        return run


for _node, _verb_name, _inner in (
    ("Xdivy", "divide", lambda _, y: y), ("Xlogy", "multiply", lambda device, y: device.log(y)),
    ("Xlog1py", "multiply", lambda device, y: log1p(device, y)),
):  # fmt: skip
    _weighted(_node, _verb_name, _inner)


@kernel("AddN", rounding="each addition, in the order of the inputs", is_any=True)
def _add_n(site: Site) -> Run:
    if site.node.outputs[0].dtype == tf.variant:
        return lambda *terms: add_lists(site, terms)
    kind = site.node.outputs[0].dtype
    if site.fmt is None and not kind.is_integer:
        raise NotImplementedError(f"node {site.node.name} adds {kind.name}, which no format holds")
    add = np.add if site.fmt is None else site.device.add
    return lambda *terms: reduce(add, terms)


@kernel("Pow", rounding="once for each product, root or quotient")
def _pow(site: Site) -> Run:
    device = site.device

    def run(x: Array, y: Array) -> Array:
        exponents = np.unique(y.carrier)
        if exponents.size == 1:
            known = _power(device, x, float(exponents[0]))
            if known is not None:
                return known if not y.ndim else known.like(
                    np.broadcast_to(known.carrier, np.broadcast_shapes(x.shape, y.shape)).copy()
                )  # fmt: skip
        # Adam's powers of beta: host functions in binary64, rounded once to nearest.
        site.note_on_host(x.size)
        with np.errstate(all="ignore"):
            wide = np.power(np.float64(x.carrier), np.float64(y.carrier))
        return device.from_host(wide, x.format)

    return run


def _power(device: Device, x: Array, exponent: float) -> Array | None:
    """x to a power that has a rule; None for another one."""
    if exponent in (2, 3):
        square = device.multiply(x, x)
        return square if exponent == 2 else device.multiply(square, x)
    rules: dict[float, Callable[[Array], Array]] = {
        1: lambda x: x, 0.5: device.sqrt, -0.5: device.rsqrt,
        -1: lambda x: device.divide(1.0, x),
    }  # fmt: skip
    rule = rules.get(exponent)
    return None if rule is None else rule(x)


# Gradients of functions, from their results -------------------------------------------------------


@kernel("ReluGrad", rounding="none")
def _relu_gradient(site: Site) -> Run:
    device = site.device
    return lambda gradient, features: device.select(as_read(device, features) > 0, gradient)


def _gradient(node: str, rule: Any) -> None:
    @kernel(node, rounding="each operation of the rule of ipu.learn")
    def build(site: Site) -> Run:
        device = site.device
        return lambda y, gradient: rule(device, gradient, (y,))


for _node, _rule in (
    ("TanhGrad", gradient_rule(ops.tanh)), ("SigmoidGrad", gradient_rule(ops.sigmoid)),
    ("SqrtGrad", gradient_rule(ops.sqrt)),
):  # fmt: skip
    _gradient(_node, _rule)


@kernel("ReciprocalGrad", "InvGrad", rounding="y², the product with the gradient")
def _reciprocal_gradient(site: Site) -> Run:
    device = site.device
    return lambda y, gradient: device.negative(device.multiply(device.multiply(y, y), gradient))


@kernel("RsqrtGrad", rounding="y², y³, -½ of the gradient, the product")
def _rsqrt_gradient(site: Site) -> Run:
    device = site.device

    def run(y: Array, gradient: Array) -> Array:
        cube = device.multiply(device.multiply(y, y), y)
        return device.multiply(device.multiply(gradient, -0.5), cube)

    return run


# Comparisons --------------------------------------------------------------------------------------


def _comparison(node: str, compare: Any) -> None:
    @kernel(node, rounding="none")
    def build(site: Site) -> Run:
        device = site.device
        return lambda x, y: compare(as_read(device, x), as_read(device, y))


for _node, _compare in (
    ("Less", np.less), ("LessEqual", np.less_equal), ("Greater", np.greater),
    ("GreaterEqual", np.greater_equal), ("Equal", np.equal), ("NotEqual", np.not_equal),
):  # fmt: skip
    _comparison(_node, _compare)


def _test(node: str, test: Any) -> None:
    @kernel(node, rounding="none")
    def build(site: Site) -> Run:
        return lambda x: test(x.carrier)


_test("IsNan", np.isnan)


def _of_gradients(node: str, test: Callable[[Any], Any], *, shows: bool) -> None:
    """A test for infinities: what a loss scaler asks of gradients.

    shows    what the test says where the status register has an overflow.
    """

    @kernel(node, rounding="none")
    def build(site: Site) -> Run:
        if not _hides_overflow(site):
            return lambda x: test(x.carrier)
        machine = site.machine
        return lambda x: np.where(machine.has_overflown, shows, test(x.carrier))


def _hides_overflow(site: Site) -> bool:
    """Whether a test of gradients has to ask the status register, since overflow saturates.

    The formats are those in which the program's gradients are computed: weights of binary32 get
    gradients of binary32 that were cast from others.

    Source    docs/semantics.md §6 (schemes that react to non-finite gradients).
    """
    if site.direction not in ("backward", "optimizer"):
        return False
    saturating = [
        fmt for fmt in site.gradients if site.device.context(fmt).settings.overflow == "saturate"
    ]
    if saturating and site.machine.choices.found_inf != "status":
        raise RuntimeError(
            f"node {site.node.name} looks for infinities in gradients, and overflow in "
            f"{saturating[0]} saturates here; set floating_point_behaviour.nanoo = True, or ask "
            "for the status register with --found-inf status"
        )
    return bool(saturating)


_of_gradients("IsFinite", np.isfinite, shows=False)
_of_gradients("IsInf", np.isinf, shows=True)
