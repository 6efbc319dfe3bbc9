"""The operations of a Context, by the names numpy gives them.

Each is exact first and rounded once, in the context's format by its rounding and policies; each
takes `out=` and raises flags as IEEE 754 says.

Source    IEEE 754-2019 §5 and §9.2; docs/semantics.md §3.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fpsim.array import Array
from fpsim.elementwise import compare, elementary, integers
from fpsim.elementwise.apply import apply, as_read
from fpsim.elementwise.inputs import floats
from fpsim.elementwise.remainder import remainder
from fpsim.elementwise.unscale import quotient_operands
from fpsim.operands import ContextOperands, Operand, Out
from fpsim.records.flags import Flags
from fpsim.records.rounding import RTN, RTP, RTZ, Rounding
from fpsim.records.settings import Settings
from fpsim.state.draws import draw
from fpsim.state.processor import usual_arithmetic_in
from fpsim.state.publish import broadcast_operands, fold, publish

__all__ = ["Operations"]

#: Roundings to whole numbers, and what they are in binary64.
_WHOLE: dict[str, tuple[Rounding, np.ufunc]] = {
    "floor": (RTN, np.floor), "ceil": (RTP, np.ceil), "trunc": (RTZ, np.trunc),
}  # fmt: skip
#: Largest whole power: each costs a product.
_LARGEST_POWER = 4096


@lru_cache(maxsize=64)
def _rounded_by(settings: Settings, rounding: Rounding) -> Settings:
    return settings.replace(rounding=rounding)


def _whole_power(n: object) -> int:
    number = isinstance(n, (int, float, np.integer)) and not isinstance(n, bool)
    if not number or n != n // 1:  # type: ignore[operator]
        raise TypeError(
            f"n={n!r} is not a whole number; ** and power take whole numbers, roots are ctx.sqrt(x)"
        )
    whole = int(n)
    if abs(whole) > _LARGEST_POWER:
        raise ValueError(f"n={n} is beyond {_LARGEST_POWER} products; take a smaller power")
    return whole


#: What one guarded kernel or function computes.
_GUARDED = (
    "add", "subtract", "multiply", "divide", "sqrt", "fma", "round_to_integral", "floor", "ceil",
    "trunc", "power", "ieee_remainder", "fmod", "_remainder", "negative", "absolute", "_sign",
    "maximum", "minimum", "fmax", "fmin", "_extreme", "compare", "equal", "less", "less_equal",
    "exp", "log", "tanh", "sigmoid", "rsqrt", "erf", "_elementary",
)  # fmt: skip


@usual_arithmetic_in(*_GUARDED)
class Operations(ContextOperands):
    """Elementwise operations that a Context inherits."""

    def add(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x + y, rounded once.

        Flags     INVALID for inf - inf; the rest from the rounding.
        Source    IEEE 754-2019 §5.4.1 addition.
        """
        return self.rounded("add", self.carriers((x, y)), out)

    def subtract(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x - y, rounded once.

        Source    IEEE 754-2019 §5.4.1 subtraction.
        """
        return self.rounded("subtract", self.carriers((x, y)), out)

    def multiply(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x * y, rounded once.

        Flags     INVALID for 0 * inf; the rest from the rounding.
        Source    IEEE 754-2019 §5.4.1 multiplication.
        """
        return self.rounded("multiply", self.carriers((x, y)), out)

    def divide(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x / y, rounded once.

        Flags     DIVBYZERO for finite / 0, INVALID for 0/0 and inf/inf.
        Source    IEEE 754-2019 §5.4.1 division.
        """
        return self.rounded("divide", self.carriers((x, y)), out)

    def divide_by(self, x: Operand, divisor: float, out: Out = None) -> Array:
        """x / fl(divisor), rounded once: the divisor is a binary32 number, of any size.

        Flags     those of reading x and of the rounding.
        Raises    ValueError for a divisor that is not positive, finite and normal in binary32.

        >>> import fpsim as fp
        >>> half = fp.Context(fp.BINARY16)
        >>> float(half.divide_by(half.array(2.0), 2.0**17)) == 2.0**-16
        True
        """
        (carrier,) = self.carriers((x,))
        operands = quotient_operands(carrier, divisor, self.settings)
        return self.rounded("divide", operands, out)

    def sqrt(self, x: Operand, out: Out = None) -> Array:
        """The square root, rounded once; sqrt(-0) is -0.

        Flags     INVALID for x < 0.
        Source    IEEE 754-2019 §5.4.1 squareRoot.
        """
        return self.rounded("sqrt", self.carriers((x,)), out)

    def fma(self, x: Operand, y: Operand, z: Operand, out: Out = None) -> Array:
        """Fused multiply-add x*y + z, rounded once.

        Shapes    x, y, z broadcast; the result has the broadcast shape.
        Rounding  once, in this context; product and sum before it are exact.
        Error     at most ulp/2 (RNE, RNA), less than one ulp otherwise.
        Flags     INVALID for inf*0, inf-inf and signalling NaN; the rest from the rounding.
        Source    IEEE 754-2019 §5.4.1 fusedMultiplyAdd.

        >>> import fpsim as fp
        >>> half = fp.Context(fp.BINARY16)
        >>> half.fma(half.array(0.1), 10.0, -1.0).values      # multiply then add gives 0
        array(-0.00024414, dtype=float32)
        """
        if self.settings.native:
            raise TypeError(
                "fma is not offered in binary64, the native reference; use a narrower format"
            )
        return self.rounded("fma", self.carriers((x, y, z)), out)

    def round_to_integral(self, x: Operand, out: Out = None) -> Array:
        """x rounded to a whole number by this context's rounding.

        Flags     INEXACT where it changes (IEEE's roundToIntegralExact).
        Source    IEEE 754-2019 §5.9.
        """
        return self.rounded(
            "round_to_integral", self.carriers((x,)), out, integers.round_to_integral
        )

    def floor(self, x: Operand, out: Out = None) -> Array:
        """The largest whole number not above x, as far as the format has it.

        Flags     INVALID for a signalling NaN; no INEXACT.
        Source    IEEE 754-2019 §5.9 roundToIntegralTowardNegative.

        >>> import fpsim as fp
        >>> half = fp.Context(fp.BINARY16)
        >>> half.floor(half.array([1.5, -1.5])), half.flags.names
        (Array([ 1., -2.], binary16), [])
        """
        return self._whole("floor", x, out)

    def ceil(self, x: Operand, out: Out = None) -> Array:
        """The smallest whole number not below x (roundToIntegralTowardPositive); see `floor`."""
        return self._whole("ceil", x, out)

    def trunc(self, x: Operand, out: Out = None) -> Array:
        """x without its fraction (roundToIntegralTowardZero); see `floor`."""
        return self._whole("trunc", x, out)

    def _whole(self, name: str, x: Operand, out: Out) -> Array:
        """A rounding that the settings do not choose: nothing is drawn, n stays."""
        (a,) = self.carriers((x,))
        rounding, native = _WHOLE[name]
        flags = np.zeros(a.shape, np.uint8)
        if self.settings.native:
            return self.exact(name, [a], np.asarray(native(a)), flags, out)
        settings = _rounded_by(self.settings, rounding)
        values, _ = apply("round_to_integral", (a,), settings, element_flags=flags)
        # An INEXACT that comes with OVERFLOW is that of the overflow.
        alone = (flags & np.uint8(Flags.OVERFLOW)) == 0
        flags[alone] &= np.uint8(~int(Flags.INEXACT) & 0xFF)
        return self.exact(name, [a], values, flags, out)

    def power(self, x: Operand, n: int, out: Out = None) -> Array:
        """x to a whole power: ((x*x)*x)*..., every product rounded; 1 / x**-n for negative n.

        x**0 is 1, also for NaN, and x**1 is x, both without flags.

        Rounding  abs(n) - 1 products from the left, each an operation; a division where n < 0.
        Flags     those of the products and the division.
        Raises    TypeError for an n that is no whole number, ValueError beyond 4096.
        Source    the order is ours; IEEE 754-2019 §9.2 pown(x, 0) = 1.

        >>> import fpsim as fp
        >>> half = fp.Context(fp.BINARY16)
        >>> half.array([3.0, 0.1]) ** 3
        Array([2.70000000e+01, 9.99450684e-04], binary16)
        """
        n = _whole_power(n)
        (a,) = self.carriers((x,))
        if n == 0:
            one = np.broadcast_to(self.carriers((1,))[0], a.shape)
            return self.exact("power", [a], one.copy(), np.zeros(a.shape, np.uint8), out)
        if n == 1:
            return self.exact("power", [a], a.copy(), np.zeros(a.shape, np.uint8), out)
        base = self.wrapped(a)
        result = base
        for i in range(abs(n) - 1):
            last = n > 0 and i == n - 2
            result = self.multiply(result, base, out if last else None)
        return result if n > 0 else self.divide(1, result, out)

    def ieee_remainder(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x - n y with n the whole number nearest to x / y, ties to even; always exact.

        Flags     INVALID for infinite x and zero y.
        Source    IEEE 754-2019 §5.3.1 remainder.

        >>> import fpsim as fp
        >>> half = fp.Context(fp.BINARY16)
        >>> float(half.ieee_remainder(half.array(5.0), 3.0))
        -1.0
        """
        return self._remainder("ieee_remainder", x, y, out)

    def fmod(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x - n y with n = x / y cut toward zero, as C's fmod; always exact.

        >>> import fpsim as fp
        >>> half = fp.Context(fp.BINARY16)
        >>> float(half.fmod(half.array(5.0), 3.0))
        2.0
        """
        return self._remainder("fmod", x, y, out)

    def _remainder(self, name: str, x: Operand, y: Operand, out: Out) -> Array:
        a, b = self.carriers((x, y))
        values, flags = remainder(a, b, self.settings, nearest=name == "ieee_remainder")
        return self.exact(name, [a, b], values, flags, out)

    def negative(self, x: Operand, out: Out = None) -> Array:
        """-x: the sign bit flipped, no flags."""
        return self._sign("negative", x, out)

    def absolute(self, x: Operand, out: Out = None) -> Array:
        """|x|: the sign bit cleared, no flags."""
        return self._sign("absolute", x, out)

    def _sign(self, name: str, x: Operand, out: Out) -> Array:
        (a,) = self.carriers((x,))
        values = compare.with_sign(name, a, self.settings)
        return self.exact(name, [a], values, np.zeros(a.shape, np.uint8), out)

    def copysign(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x with the sign bit of y, no flags; the zero and the NaN of a format with one zero stay.

        Source    IEEE 754-2019 §5.5.1 copySign.
        """
        a, b = self.carriers((x, y))
        values = np.asarray(np.copysign(a, b))
        if not self.settings.format.has_negative_zero:
            values = np.where((a == 0) | np.isnan(a), a, values)
        return self.exact("copysign", [a, b], values, np.zeros(values.shape, np.uint8), out)

    def sign(self, x: Operand, out: Out = None) -> Array:
        """1, -1, +0 for a zero of either sign, and x for a NaN; no flags."""
        (a,), (one,) = self.carriers((x,)), self.carriers((1,))
        a = as_read(a, self.settings)
        values = np.where(np.isnan(a), a, np.where(a == 0, 0, np.copysign(one, a))).astype(a.dtype)
        return self.exact("sign", [a], values, np.zeros(a.shape, np.uint8), out)

    def maximum(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """The larger; a NaN wins, -0 < +0 (IEEE 754-2019 §9.6 maximum)."""
        return self._extreme("maximum", x, y, out)

    def minimum(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """The smaller; a NaN wins, -0 < +0 (IEEE 754-2019 §9.6 minimum)."""
        return self._extreme("minimum", x, y, out)

    def fmax(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """The larger; the number wins over a NaN (IEEE 754-2019 §9.6 maximumNumber)."""
        return self._extreme("fmax", x, y, out)

    def fmin(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """The smaller; the number wins over a NaN (IEEE 754-2019 §9.6 minimumNumber)."""
        return self._extreme("fmin", x, y, out)

    def _extreme(self, name: str, x: Operand, y: Operand, out: Out) -> Array:
        a, b = self.carriers((x, y))
        values, flags = compare.extreme(name, a, b, self.settings)
        return self.exact(name, [a, b], values, flags, out)

    def compare(
        self, name: str, x: Operand, y: Operand, signalling: bool | None = None
    ) -> NDArray[np.bool_]:
        """Truth values of equal, not_equal, less, less_equal, greater or greater_equal.

        Flags     INVALID for signalling NaN; if `signalling`, for every NaN. Default: orders
                  signal, equality does not (IEEE 754-2019 §5.11).
        """
        a, b = self.carriers((x, y), comparing=True)
        if signalling is None:
            signalling = compare.SIGNALLING[name]
        truth, flags = compare.compare(name, a, b, self.settings, signalling)
        publish(
            self, name, truth, fold(flags), flags if self.watched else None,
            broadcast_operands([a, b], truth.shape), in_format=False,
        )  # fmt: skip
        return truth

    def equal(self, x: Operand, y: Operand, signalling: bool = False) -> NDArray[np.bool_]:
        """x == y; quiet unless `signalling`."""
        return self.compare("equal", x, y, signalling)

    def less(self, x: Operand, y: Operand, signalling: bool = True) -> NDArray[np.bool_]:
        """x < y; every NaN raises INVALID unless `signalling=False`."""
        return self.compare("less", x, y, signalling)

    def less_equal(self, x: Operand, y: Operand, signalling: bool = True) -> NDArray[np.bool_]:
        """x <= y; every NaN raises INVALID unless `signalling=False`."""
        return self.compare("less_equal", x, y, signalling)

    def convert(self, x: ArrayLike | Array, out: Out = None) -> Array:
        """x in this format: an Array of another, floats, integers or packed storage; one rounding.

        Flags     INVALID for signalling NaN; the rest from the rounding.
        Raises    TypeError for complex, object, string and longdouble input.
        Source    IEEE 754-2019 §5.4.2 convertFormat, convertFromInt.
        """
        if isinstance(x, Array):
            own = x.format == self.settings.format
            return self.rounded("copy" if own else "convert", [x.carrier], out)
        return self.rounded("convert", [floats(x, self.settings.native)], out)

    def to_integers(self, x: Operand, dtype: DTypeLike) -> NDArray[Any]:
        """x as integers of 8 to 64 bits, rounded to whole numbers by this context's rounding.

        Flags     INVALID alone for NaN, infinity and out of range (the result is then the smallest
                  signed, the largest unsigned number, as on x86); else INEXACT where rounded.

        >>> import fpsim as fp
        >>> half = fp.Context(fp.BINARY16)
        >>> half.to_integers(half.array([2.5, 3.5, -7.0]), "int32")
        array([ 2,  4, -7], dtype=int32)
        """
        kind = integers.integer_type(dtype)
        a = as_read(self.carriers((x,))[0], self.settings)
        settings = self.settings.with_format(integers.whole_format(self.settings.format))
        bits = draw(self, a.shape, settings)
        rounded, _ = apply("round_to_integral", (a,), settings, track=False, bits=bits)
        result, flags = integers.to_integers(a, rounded, kind)
        publish(
            self, "to_integers", result, fold(flags), flags if self.watched else None,
            broadcast_operands([a], a.shape), advances=settings.rounding.stochastic,
            in_format=False,
        )  # fmt: skip
        return result

    def exp(self, x: Operand, out: Out = None) -> Array:
        """e**x, rounded once; exp(0) = 1 is exact.

        >>> import fpsim as fp
        >>> single = fp.Context(fp.BINARY32)
        >>> single.exp(single.array([0.0, 1.0]))
        Array([1.        , 2.71828175], binary32)
        """
        return self._elementary("exp", x, out)

    def log(self, x: Operand, out: Out = None) -> Array:
        """The natural logarithm, rounded once; log(1) = 0 is exact, log(0) a pole.

        Flags     DIVBYZERO for a zero, INVALID for x < 0; the rest from the rounding.
        """
        return self._elementary("log", x, out)

    def tanh(self, x: Operand, out: Out = None) -> Array:
        """The hyperbolic tangent, rounded once; tanh(±0) = ±0."""
        return self._elementary("tanh", x, out)

    def sigmoid(self, x: Operand, out: Out = None) -> Array:
        """1 / (1 + e**-x), rounded once; sigmoid(0) = 1/2 is exact.

        >>> import fpsim as fp
        >>> half = fp.Context(fp.BINARY16)
        >>> half.sigmoid(half.array([0.0, 1.0]))
        Array([0.5       , 0.73095703], binary16)
        """
        return self._elementary("sigmoid", x, out)

    def rsqrt(self, x: Operand, out: Out = None) -> Array:
        """1 / sqrt(x), rounded once; a pole at ±0, whose sign the value has.

        Flags     DIVBYZERO for a zero, INVALID for x < 0; the rest from the rounding.
        """
        return self._elementary("rsqrt", x, out)

    def erf(self, x: Operand, out: Out = None) -> Array:
        """2/sqrt(pi) times the integral of e**(-t*t) from 0 to x, rounded once; erf(±0) = ±0."""
        return self._elementary("erf", x, out)

    def _elementary(self, name: str, x: Operand, out: Out) -> Array:
        if self.settings.native:
            raise TypeError(
                f"{name} is not offered in binary64, the native reference; use a narrower format"
            )
        return self.rounded(name, self.carriers((x,)), out, elementary.evaluate)
