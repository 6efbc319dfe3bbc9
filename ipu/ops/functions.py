"""Functions: powers, those with an instruction, and those without one.

What has an instruction is a verb of the device and correctly rounded, as powers are. Everything
else is computed in binary64 by numpy or SciPy and rounded once, with the flags that the rounding
raises, INVALID outside of the domain, and DIVBYZERO at a pole, which has the value of x / 0. The
machine's own last digits are unknown (ASSUMED).

Source    docs/semantics.md §6 (functions); SciPy (scipy.special).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fpsim.array import Array
from fpsim.elementwise import powers
from fpsim.elementwise.apply import apply, as_read
from fpsim.records.flags import Flags
from fpsim.records.rounding import RNE
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags
from fpsim.state.draws import NO_DRAW, Draw
from ipu.machine.device import Device
from ipu.ops.primitive import Primitive, Saved
from ipu.ops.rules import steps, sum_to

__all__ = [
    "HOST", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0", "bessel_i0e",
    "bessel_i1", "bessel_i1e", "bessel_j0", "bessel_j1", "bessel_k0", "bessel_k0e", "bessel_k1",
    "bessel_k1e", "bessel_y0", "bessel_y1", "betainc", "cos", "cosh", "dawson", "digamma", "erf",
    "erfc", "erfinv", "exp", "exp2", "expint", "expm1", "floor_mod", "fresnel_cos",
    "fresnel_sin", "gammainc",
    "gammaincc", "lgamma", "log", "log10", "log1p", "log2", "ndtri", "polygamma", "power", "rsqrt",
    "sin", "sinh", "spence", "tan", "zeta",
]

Wide = NDArray[np.float64]

_ONCE = "once"
_EACH = "each operation of the gradient"


# Verbs of the device -----------------------------------------------------------------------------


def _exp(device: Device, x: Array) -> tuple[Array, Saved]:
    y = device.exp(x)
    return y, (y,)


def _exp_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.multiply(gradient, saved[0])


def _log(device: Device, x: Array) -> tuple[Array, Saved]:
    return device.log(x), (x,)


def _log_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    return device.divide(gradient, saved[0])


def _rsqrt(device: Device, x: Array) -> tuple[Array, Saved]:
    y = device.rsqrt(x)
    return y, (y,)


def _rsqrt_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """(gradient · -1/2) · y³."""
    (y,) = saved
    cube = device.multiply(device.multiply(y, y), y)
    return device.multiply(device.multiply(gradient, -0.5), cube)


def _erf(device: Device, x: Array) -> tuple[Array, Saved]:
    return device.erf(x), (x,)


#: 2 / sqrt(pi).
_ERF_SLOPE = 1.1283791670955126


def _erf_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """gradient · (e**(-x²) · 2/sqrt(pi))."""
    (x,) = saved
    bell = device.exp(device.negative(device.multiply(x, x)))
    return device.multiply(gradient, device.multiply(bell, _ERF_SLOPE))


#: e**x.
exp = Primitive(
    "exp",
    _exp,
    (_exp_x,),
    verb="exp",
    cost=steps(exp=1),
    rounding=_ONCE,
    gradient="the product with y",
)
#: The natural logarithm.
log = Primitive(
    "log",
    _log,
    (_log_x,),
    verb="log",
    cost=steps(log=1),
    rounding=_ONCE,
    gradient="the quotient by x",
)
#: 1 / sqrt(x).
rsqrt = Primitive(
    "rsqrt", _rsqrt, (_rsqrt_x,), verb="rsqrt", cost=steps(rsqrt=1), rounding=_ONCE,
    gradient="y², y³, -1/2 of the gradient, the product",
)
#: The error function.
erf = Primitive(
    "erf", _erf, (_erf_x,), verb="erf", cost=steps(tanh=1), rounding=_ONCE, gradient=_EACH
)


# Powers ------------------------------------------------------------------------------------------


def _pow(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    core = device.context(x.format).core
    carriers = core.carriers((x, y))
    if core.settings.native:
        with np.errstate(all="ignore"):
            return Array(np.power(*carriers), x.context), (x, y)
    z = core.rounded("pow", carriers, None, powers.evaluate)
    return z, (x, y, z)


def _pow_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """gradient · (y · x**(y - 1)); 0 where y is 0."""
    x, y, *_rest = saved
    slope = device.multiply(y, _pow(device, x, device.subtract(y, 1.0))[0])
    share = device.multiply(gradient, slope)
    zero = np.broadcast_to(y.carrier == 0, share.shape)
    return sum_to(device, device.select(~zero, share), x.shape, x.format)


def _pow_y(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    """gradient · (z · log x); 0 where x is not above 0."""
    x, y, z = saved
    positive = x.carrier > 0
    safe = x.like(np.where(positive, x.carrier, x.carrier.dtype.type(1)))
    share = device.multiply(gradient, device.multiply(z, device.log(safe)))
    positive_share = device.select(np.broadcast_to(positive, share.shape), share)
    return sum_to(device, positive_share, y.shape, y.format)


#: x to the power y, which broadcast: one function, whole powers included. `x ** n` of tensors and
#: arrays is products.
power = Primitive(
    "power", _pow, (_pow_x, _pow_y), cost=steps(log=1, exp=1, multiply=1), rounding=_ONCE,
    gradient=_EACH,
)


# Functions without an instruction ----------------------------------------------------------------

#: Those that the host computes, by name: reports list them.
HOST: dict[str, Primitive] = {}


def _in_binary64(function: Callable[..., Any], overflows: bool) -> Any:
    """An engine of `Core.rounded` that computes in binary64, then rounds."""

    def evaluate(
        name: str, operands: list[Carrier], settings: Settings, *, out: Carrier | None = None,
        element_flags: ElementFlags | None = None, bits: Draw = NO_DRAW,
    ) -> tuple[Carrier, int]:
        with np.errstate(all="ignore"):
            numbers = [np.asarray(as_read(x, settings), np.float64) for x in operands]
            wide = np.asarray(function(*numbers), np.float64)
        finite = reduce(np.logical_and, map(np.isfinite, numbers))
        pole = np.isinf(wide) & finite
        if overflows:
            wide = np.where(pole, np.copysign(np.finfo(np.float64).max, wide), wide)
        reading = settings
        if settings.format.has_infinity:
            reading = settings.replace(infinite_input="keep")
        values, flags = apply(
            "convert", [wide], reading, out=out, element_flags=element_flags, bits=bits
        )
        of_numbers = ~reduce(np.logical_or, map(np.isnan, numbers))
        own_flags = (np.isnan(wide) & of_numbers) * np.uint8(Flags.INVALID)
        if pole.any() and not overflows:
            own_flags |= pole * np.uint8(Flags.DIVBYZERO)
            values[pole] = _poles(wide[pole], reading)
        if element_flags is not None:
            element_flags |= own_flags
        return values, flags | int(np.bitwise_or.reduce(own_flags, axis=None))

    return evaluate


def _poles(infinities: Wide, settings: Settings) -> Carrier:
    """What a number over zero is in the context."""
    ones = np.copysign(1.0, infinities)
    return apply("divide", [ones, np.zeros_like(ones)], settings.replace(rounding=RNE))[0]


def _host(
    name: str, function: Callable[..., Any], *slopes: Callable[..., Any], operands: int = 1,
    overflows: bool = False,
) -> Primitive:
    """The row of a function of numpy or SciPy; a slope for each operand that has a gradient.

    overflows    an infinite value of finite operands lies beyond binary64; else it is a pole.
    """
    value = _in_binary64(function, overflows)

    def compute(device: Device, engine: Any, arrays: tuple[Array, ...]) -> Array:
        context = device.context(arrays[0].format)
        carriers = context.core.carriers(arrays)
        if context.core.settings.native:
            with np.errstate(all="ignore"):
                return Array(np.asarray(function(*carriers), np.float64), context)
        return context.core.rounded(name, carriers, None, engine)

    def forward(device: Device, *arrays: Array) -> tuple[Array, Saved]:
        return compute(device, value, arrays), arrays

    def rule(slope: Callable[..., Any], operand: int) -> Any:
        engine = _in_binary64(slope, False)

        def vjp(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
            arrays = tuple(saved)
            share = device.multiply(gradient, compute(device, engine, arrays))
            return sum_to(device, share, arrays[operand].shape, arrays[operand].format)

        return vjp

    vjps = [rule(slope, k) for k, slope in enumerate(slopes)]
    row = Primitive(
        name, forward, (*vjps, *[None] * (operands - len(vjps))), unit="vector",
        cost=steps(exp=1), rounding="binary64 on the host, then once",
        gradient="the slope, in binary64 on the host, then once; the product with the gradient",
        source="numpy and SciPy; the vendor's own last digits are not known",
    )
    HOST[name] = row
    return row


def _floor_mod(x: Wide, y: Wide) -> Wide:
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


log1p = _host("log1p", special.log1p, lambda x: 1 / (1 + x))
expm1 = _host("expm1", special.expm1, np.exp, overflows=True)
sin = _host("sin", np.sin, np.cos)
cos = _host("cos", np.cos, lambda x: -np.sin(x))
tan = _host("tan", np.tan, lambda x: 1 + np.tan(x) ** 2)
asin = _host("asin", np.arcsin, lambda x: 1 / np.sqrt((1 - x) * (1 + x)))
acos = _host("acos", np.arccos, lambda x: -1 / np.sqrt((1 - x) * (1 + x)))
atan = _host("atan", np.arctan, lambda x: 1 / (1 + x * x))
sinh = _host("sinh", np.sinh, np.cosh, overflows=True)
cosh = _host("cosh", np.cosh, np.sinh, overflows=True)
asinh = _host("asinh", np.arcsinh, lambda x: 1 / np.hypot(x, 1))
acosh = _host("acosh", np.arccosh, lambda x: 1 / np.sqrt((x - 1) * (x + 1)))
atanh = _host("atanh", np.arctanh, lambda x: 1 / ((1 - x) * (1 + x)))
atan2 = _host("atan2", np.arctan2, lambda y, x: x / (x * x + y * y),
              lambda y, x: -y / (x * x + y * y), operands=2)
#: x - y floor(x / y), with the sign of y; zeros have that of x.
floor_mod = _host("floor_mod", _floor_mod, operands=2)
exp2 = _host("exp2", np.exp2, lambda x: np.exp2(x) * np.log(2), overflows=True)
log2 = _host("log2", np.log2, lambda x: 1 / (x * np.log(2)))
log10 = _host("log10", np.log10, lambda x: 1 / (x * np.log(10)))
erfc = _host("erfc", special.erfc, lambda x: -_ERF_SLOPE * np.exp(-x * x))
erfinv = _host("erfinv", special.erfinv)
ndtri = _host("ndtri", special.ndtri)
lgamma = _host("lgamma", special.gammaln, special.psi)
digamma = _host("digamma", special.psi, lambda x: special.polygamma(1, x))
polygamma = _host("polygamma", special.polygamma, operands=2)
zeta = _host("zeta", special.zeta, operands=2)
gammainc = _host("gammainc", special.gammainc, operands=2)
gammaincc = _host("gammaincc", special.gammaincc, operands=2)
betainc = _host("betainc", special.betainc, operands=3)
bessel_i0 = _host("bessel_i0", special.i0, special.i1, overflows=True)
bessel_i0e = _host("bessel_i0e", special.i0e)
bessel_i1 = _host("bessel_i1", special.i1, overflows=True)
bessel_i1e = _host("bessel_i1e", special.i1e)
bessel_j0 = _host("bessel_j0", special.j0, lambda x: -special.j1(x))
bessel_j1 = _host("bessel_j1", special.j1)
bessel_k0 = _host("bessel_k0", special.k0, lambda x: -special.k1(x))
bessel_k0e = _host("bessel_k0e", special.k0e)
bessel_k1 = _host("bessel_k1", special.k1)
bessel_k1e = _host("bessel_k1e", special.k1e)
bessel_y0 = _host("bessel_y0", special.y0, lambda x: -special.y1(x))
bessel_y1 = _host("bessel_y1", special.y1)
dawson = _host("dawson", special.dawsn)
expint = _host("expint", special.expi)
fresnel_cos = _host("fresnel_cos", lambda x: special.fresnel(x)[1])
fresnel_sin = _host("fresnel_sin", lambda x: special.fresnel(x)[0])
spence = _host("spence", special.spence)
