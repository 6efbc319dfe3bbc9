"""The elementwise and reducing operations of a device, by the names its programs call them.

Each computes in its operand's format, in the device's context for it; `Device` inherits them.

Source    docs/semantics.md §6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fpsim.array import Array
from fpsim.context import Context
from fpsim.core import Operand
from fpsim.elementwise.apply import common_shape
from fpsim.elementwise.axes import checked_axes, one_axis
from fpsim.elementwise.order import largest_along
from fpsim.elementwise.selection import Keys, kept_least, kept_positive, kept_where
from fpsim.elementwise.sizes import checked_number, checked_shape
from fpsim.products.spread_sums import native_spread_sum, spread_sum, sums_of_binary64
from fpsim.records.evidence import Evidence, Fact
from fpsim.records.formats import BINARY32, BINARY64, Format
from fpsim.records.rounding import SR
from fpsim.rounded_products import native_sum
from fpsim.state.processor import usual_arithmetic_in
from ipu.machine.reference import FUNCTIONS, wide
from ipu.machine.vector import thread_cycles

__all__ = ["MAXIMUM", "SUMS", "Verbs", "checked_array"]

#: Which of two is larger if one is NaN, by the switch `max_nan`: the Context's method.
MAXIMUM = {"number": "fmax", "propagate": "maximum"}
#: Orders of the sums of a device, by the switch `sums`, and what each rests on.
SUMS = {
    "spread": Fact(
        "parts of at most 64 neighbours, then the sums of the parts", Evidence.ASSUMED,
        "poplibs, Reduction.cpp, spreads sums over workers and tiles; how, depends on the layout",
    ),
    "chain": Fact("one summand after the other", Evidence.ASSUMED, "asked for by sums='chain'"),
}  # fmt: skip


def checked_array(x: Any) -> Array:
    """x, which must be an Array."""
    if not isinstance(x, Array):
        raise TypeError(
            f"x={type(x).__name__} is not an Array; make one with device.from_host(values, format)"
        )
    return x


#: What one operation of the context computes.
_BY_CONTEXT = (
    "context", "_of", "to_integers", "add", "subtract", "multiply", "divide", "unscale", "negative",
    "sqrt", "exp", "log", "tanh", "sigmoid", "rsqrt", "erf", "maximum",
)  # fmt: skip


@usual_arithmetic_in(*_BY_CONTEXT)
class Verbs(ABC):
    """Operations on arrays; the abstract method returns the context that computes in a format.

    vector_cycles    thread cycles of the elementwise operations and reductions so far, by the
                     declared model of `ipu.machine.vector`.
    """

    max_nan: str
    sums: str
    vector_cycles: int

    @abstractmethod
    def context(self, fmt: Format) -> Context:
        """The context that computes in fmt on this device."""

    def _of(self, *operands: Operand) -> Context:
        for operand in operands:
            if isinstance(operand, Array):
                return self.context(operand.format)
        raise TypeError("no operand is an Array; make one with device.from_host(values, format)")

    # Formats --------------------------------------------------------------------------------

    def cast(self, x: Array, fmt: Format) -> Array:
        """x in another format, rounded once; itself if it is in that format."""
        if isinstance(fmt, Format) and checked_array(x).format == fmt:
            return x
        checked_array(x)
        context = self.context(fmt)
        fmt = context.format
        if fmt == BINARY32 and _is_far_from_tiny(x.format) and _is_plain(context, x):
            self.vector_cycles += thread_cycles("cast", fmt, x.size)
            return Array(x.carrier, context)  # they are normal numbers there, as they stand
        return context.convert(x)

    def to_integers(self, x: Array, dtype: DTypeLike) -> NDArray[Any]:
        """x as integers; NaN gives INV and, in int32, -2147483648."""
        return self._of(x).to_integers(x, dtype)

    # Element by element ---------------------------------------------------------------------

    def add(self, x: Operand, y: Operand, out: Array | None = None) -> Array:
        """x + y, rounded once."""
        return self._of(x, y).add(x, y, out)

    def subtract(self, x: Operand, y: Operand, out: Array | None = None) -> Array:
        """x - y, rounded once."""
        return self._of(x, y).subtract(x, y, out)

    def multiply(self, x: Operand, y: Operand, out: Array | None = None) -> Array:
        """x * y, rounded once."""
        return self._of(x, y).multiply(x, y, out)

    def divide(self, x: Operand, y: Operand, out: Array | None = None) -> Array:
        """x / y, rounded once; in binary16 finite / 0 is NaN with DIV0."""
        return self._of(x, y).divide(x, y, out)

    def unscale(self, x: Array, scale: float) -> Array:
        """x / fl(scale), rounded once; the scale is a binary32 number, in any format of x.

        >>> from fpsim import BINARY16
        >>> from ipu.machine import Device
        >>> device = Device()
        >>> float(device.unscale(device.from_host(2.0, BINARY16), 2.0**17)) == 2.0**-16
        True
        """
        return self._of(x).divide_by(x, scale)

    def negative(self, x: Array) -> Array:
        """-x: the sign bit flipped, no flags."""
        return self._of(x).negative(x)

    def sqrt(self, x: Array) -> Array:
        """The square root, rounded once."""
        return self._of(x).sqrt(x)

    def exp(self, x: Array) -> Array:
        """e**x, rounded once (modelled as correctly rounded: the IPU's last digit is unknown)."""
        return self._function("exp", x)

    def log(self, x: Array) -> Array:
        """The natural logarithm, rounded once (modelled as `exp` is)."""
        return self._function("log", x)

    def tanh(self, x: Array) -> Array:
        """The hyperbolic tangent, rounded once (modelled as `exp` is)."""
        return self._function("tanh", x)

    def sigmoid(self, x: Array) -> Array:
        """1 / (1 + e**-x), rounded once (modelled as `exp` is)."""
        return self._function("sigmoid", x)

    def rsqrt(self, x: Array) -> Array:
        """1 / sqrt(x), rounded once (modelled as `exp` is)."""
        return self._function("rsqrt", x)

    def erf(self, x: Array) -> Array:
        """The error function, rounded once (modelled as `exp` is)."""
        return self._function("erf", x)

    def _function(self, name: str, x: Array) -> Array:
        context = self._of(x)
        if context.settings.native:
            with np.errstate(all="ignore"):
                return Array(np.asarray(FUNCTIONS[name](x.carrier)), context)
        result: Array = getattr(context, name)(x)
        return result

    def maximum(self, x: Operand, y: Operand) -> Array:
        """The larger; INV when a NaN is read, which wins only with max_nan="propagate"."""
        larger: Array = getattr(self._of(x, y), MAXIMUM[self.max_nan])(x, y)
        return larger

    def relu(self, x: Array) -> Array:
        """max(x, 0) that passes NaN on."""
        context = self._of(x)
        flushing = context.settings.subnormals == "flush_both"
        least = x.format.smallest_normal if flushing else x.format.smallest_subnormal
        kept = None if context.counts is not None else kept_least(x.carrier, least)
        if kept is None:
            return context.maximum(x, 0.0)
        self.vector_cycles += thread_cycles("relu", x.format, x.size)
        return Array(kept, context)

    def select(self, where: NDArray[np.bool_], x: Array) -> Array:
        """x where true, +0 elsewhere; no arithmetic."""
        context = self._of(x)
        if not isinstance(where, (np.ndarray, np.generic)) or where.dtype != np.bool_:
            kind = type(where).__name__
            raise TypeError(f"where={kind} is not an array of truth values; give x > 0 or such")
        # refuses what does not broadcast
        common_shape((where, x.carrier))  # type: ignore[arg-type]
        self.vector_cycles += thread_cycles("select", x.format, x.size)
        return Array(kept_where(where, x.carrier), context)

    def select_positive(self, keys: Keys, most: int, x: Array) -> Array:
        """x where 0 < key <= most, +0 elsewhere; keys are codes or bits of floats."""
        self.vector_cycles += thread_cycles("select", x.format, x.size)
        return Array(kept_positive(keys, most, x.carrier), self._of(x))

    # Many to one ----------------------------------------------------------------------------

    def reduce_sum(
        self, x: Array, axis: int | tuple[int, ...], fmt: Format | None = None, scale: float = 1.0
    ) -> Array:
        """Sum over axes times a scale, in binary32, rounded once to fmt.

        The order is that of `sums`: parts of at most 64 summands, or one chain. binary64 is summed
        in binary64, in the same order; as one chain in numpy's.

        Shapes    the axes stay, with length 1.
        Rounding  each addition and the multiplication by fl(scale) in binary32, then once from
                  binary32 to fmt (default: x's format).
        Error     of the sum of n: at most 64 ⌈log₆₄ n⌉ u Σ|x|; of one chain (n - 1) u Σ|x|.
        Source    poplibs, Reduction.cpp: half sums accumulate in float, the scale is a float, and
                  sums are spread over workers and tiles; the grain, its contiguity and that it
                  does not depend on the layout are ASSUMED.
        """
        checked_array(x)
        axes = checked_axes(axis, x.ndim)
        if x.format == BINARY64:
            spread = self.sums == "spread"
            values = sums_of_binary64(x.carrier, axes) if spread else x.carrier.sum(axis=axes)
            total = Array(np.asarray(values), self.context(BINARY64))
        else:
            total = self._single_sum(x, axes)
        return self._scaled_sum(x, axes, total, x.format if fmt is None else fmt, scale)

    def reduce_squares(self, x: Array, axes: tuple[int, ...], scale: float = 1.0) -> Array:
        """Sum of squares over axes times a scale, in binary32, in the order of `reduce_sum`.

        binary64 stays binary64.

        Shapes    the axes stay, with length 1.
        Rounding  each square, addition and the multiplication by fl(scale), in binary32.
        """
        checked_array(x)
        axes, total = checked_axes(axes, x.ndim, "axes"), None
        if x.format != BINARY64:
            total = self._native_sum(x, axes, squared=True)
        if total is None:
            single = self.cast(x, wide(x.format))
            return self.reduce_sum(self.multiply(single, single), axes, scale=scale)
        return self._scaled_sum(x, axes, total, BINARY32, scale)

    def _single_sum(self, x: Array, axes: tuple[int, ...]) -> Array:
        """The sum in binary32, without the axes."""
        total = self._native_sum(x, axes)
        if total is None:
            self.vector_cycles += thread_cycles("add", BINARY32, x.size)
            context, single = self.context(BINARY32), self.cast(x, BINARY32)
            if self.sums == "chain":
                return context.sum(single, axes)
            total = Array(spread_sum(context.core, single.carrier, axes), context)
        return total

    def _native_sum(
        self, x: Array, axes: tuple[int, ...], *, squared: bool = False
    ) -> Array | None:
        """The same in one pass for formats whose numbers, or squares, are normal ones in binary32.

        None for other formats, where operations are counted, and for sums that are no plain ones.
        """
        context, suitable = (
            self.context(BINARY32),
            _has_plain_squares if squared else _is_far_from_tiny,
        )
        if context.counts is not None or not suitable(x.format):
            return None
        if self.sums == "chain":
            total = native_sum(context.core, x.carrier, axes, squared=squared)
        else:
            values = native_spread_sum(context.core, x.carrier, axes, squared=squared)
            total = None if values is None else Array(values, context)
        if total is not None:
            verbs = ("cast", "multiply", "add") if squared else ("cast", "add")
            self.vector_cycles += sum(thread_cycles(v, BINARY32, x.size) for v in verbs)
        return total

    def _scaled_sum(
        self, x: Array, axes: tuple[int, ...], total: Array, fmt: Format, scale: float
    ) -> Array:
        """A sum without its axes times the scale, rounded once to fmt, with them."""
        if checked_number("scale", scale) != 1:
            total = self.multiply(total, scale)
        kept = [1 if a in axes else n for a, n in enumerate(x.shape)]
        return self.cast(total.reshape(kept), fmt)

    def reduce_max(self, x: Array, axis: int) -> Array:
        """The largest along an axis, -0 < +0; INV when a NaN is read, which wins only if switched.

        Shapes    the axis stays, with length 1.
        """
        context = self._of(x)
        axis = one_axis(axis, x.ndim)
        self.vector_cycles += thread_cycles("maximum", x.format, x.size)
        largest, has_nan = largest_along(
            x.carrier, axis, context.settings, number_wins=self.max_nan == "number"
        )
        if has_nan:
            context.fmax(x, x)  # raises what reading a NaN raises
        return Array(largest, context)

    # Random bits ----------------------------------------------------------------------------

    def random_mask(self, shape: tuple[int, ...], keep: float) -> NDArray[np.bool_]:
        """True with probability floor(65536 fl(keep)) / 65536, whatever the control register says.

        One operation of the device: `keep`, in binary32, is rounded to 0 or 1 with 16 random bits.

        Source    the instruction rmask keeps an element by 16 random bits (its comparison is
                  ASSUMED); docs/semantics.md §2 (layout).
        """
        shape = checked_shape(shape, 4)
        checked_number("keep", keep)
        machine = self.context(BINARY32)
        coin = Context(BINARY32, rounding=SR(bits=16), bits=machine.core.source)
        coin.core.clock = machine.core.clock
        share = np.full(shape, coin.constant(keep).carrier)
        kept: NDArray[np.bool_] = coin.round_to_integral(Array(share, coin)).carrier == 1
        return kept


@lru_cache(maxsize=64)
def _is_far_from_tiny(fmt: Format) -> bool:
    """Whether its numbers, and sums of them, are normal ones or zero in binary32."""
    return fmt.precision < 24 and fmt.smallest_subnormal >= BINARY32.smallest_normal


@lru_cache(maxsize=64)
def _has_plain_squares(fmt: Format) -> bool:
    """Whether the squares of its numbers are zero or normal numbers of binary32."""
    if 2 * fmt.precision > BINARY32.precision:
        return False
    least, most = fmt.smallest_subnormal, fmt.max
    return least * least >= BINARY32.smallest_normal and most * most <= BINARY32.max


def _is_plain(context: Context, x: Array) -> bool:
    """Whether the context counts nothing and x has no NaN, whose reading raises a flag."""
    if context.counts is not None or x.size == 0:
        return False
    largest = x.carrier.max()
    return bool(largest == largest)
