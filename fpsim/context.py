"""Context: everything that an operation depends on, and what operations left behind.

A `Context` joins `Settings` (format, rounding, policies) with state: sticky flags, armed traps,
counts, and the source of random bits. As in `decimal`, there is no hidden global mode. Operations
have the names that numpy gives them; each is exact first and rounded once, in the context's format
by its rounding and policies, and raises flags as IEEE 754 says. `out=` is memory for the result,
`to=` the format of a product's result.

Source    IEEE 754-2019 §4, §5, §7 and §9; docs/semantics.md §2 to §5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fpsim import convolutions, operations, rounded_products, unit_products
from fpsim.array import Array
from fpsim.array_moves import values_in
from fpsim.asarray import AsArray
from fpsim.block_array import BlockArray
from fpsim.core import Core, Operand, Out
from fpsim.elementwise import codes, integers
from fpsim.elementwise.inputs import Scalar, decimal, floats
from fpsim.elementwise.progressions import progression
from fpsim.elementwise.sizes import checked_number, checked_shape
from fpsim.iterate import Iteration, iterate
from fpsim.quantizers import quantize_in
from fpsim.records.blocks import Block
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY64, Format, find_number_format
from fpsim.records.geometry import Padding, Stride
from fpsim.records.rounding import RNE, Rounding, find_rounding
from fpsim.records.settings import Settings
from fpsim.records.transforms import Transform
from fpsim.records.types import Axis, Carrier
from fpsim.records.units import MatrixUnit
from fpsim.state.bits import BitSource, Philox
from fpsim.state.counts import Counts
from fpsim.state.processor import usual_arithmetic_in

__all__ = ["Context"]

#: What was an attribute of a Context before, and where it is now.
_MOVED = {"settings": "core.settings", "seed": "core.seed", "convert": "array"}

#: What is one guarded kernel or function, or calls such.
_GUARDED = (
    "__getattr__", "__init__", "add", "subtract", "multiply", "divide", "sqrt", "fma",
    "round_to_integral", "floor", "ceil", "trunc", "power", "ieee_remainder", "fmod", "remainder",
    "negative", "absolute", "maximum", "minimum", "fmax", "fmin", "equal", "not_equal", "less",
    "less_equal", "greater", "greater_equal", "unordered", "exp", "expm1", "log", "log1p",
    "sinh", "cosh", "tanh", "sigmoid", "rsqrt", "erf", "sin", "cos",
    "dot", "sum", "mean", "matmul", "k_split", "conv2d", "max", "min", "argmax", "argmin",
)


@usual_arithmetic_in(*_GUARDED)
class Context:
    """Arithmetic in one format: rounding, policies, flags, traps and random bits.

    format, rounding, overflow, subnormals, tininess, nan, infinite_input, divide_by_zero,
    quiet_nan_raises    as in `Settings`; a format or its name, as in `fpsim list formats`.
    traps     flags that stop an operation with `FloatingPointTrap`; nothing is published then.
    seed      key of the Philox random bits, 0 to 2**64 - 1; `bits` gives another source instead.
    count     count flags, zeros and subnormals of each operation in `counts`.
    asarray   what happens where numpy or scipy asks an Array for an ndarray, with which they then
              compute in its type: "refuse", "warn" (once) or "allow".

    `core` holds what operations need of each other, for code that adds some: `core.settings` are
    all choices, `core.source` and `core.seed` are its random bits. A context is for one
    thread; `spawn(k)` makes independent children.

    >>> half = Context("binary16")
    >>> x = half.array([0.0004]); (x + 0.25 - 0.25).values
    array([0.00048828], dtype=float32)
    >>> half.flags
    <Flags.INEXACT: 1>
    """

    core: Core

    def __init__(
        self,
        format: Format | str,
        *,
        rounding: Rounding | str = RNE,
        overflow: str | None = None,
        subnormals: str = "keep",
        tininess: str = "after",
        nan: str = "canonical",
        infinite_input: str | None = None,
        divide_by_zero: str = "infinity",
        quiet_nan_raises: bool = False,
        traps: Flags = Flags.NONE,
        seed: int = 0,
        bits: BitSource | None = None,
        count: bool = False,
        asarray: str = "warn",
    ) -> None:
        settings = Settings(
            find_number_format(format), find_rounding(rounding), overflow, subnormals, tininess,
            nan, infinite_input, divide_by_zero, quiet_nan_raises,
        )
        source = Philox(seed) if bits is None else bits
        self.core = Core(self, settings, source, traps, count=count)
        self.core.asarray = AsArray(asarray)

    def __repr__(self) -> str:
        usual = Settings(self.format).choices()
        shown = [f"{k}={v!r}" for k, v in self.core.settings.choices().items() if v != usual[k]]
        return f"Context({', '.join([self.format.name, *shown])})"

    # Choices --------------------------------------------------------------------------------

    @property
    def format(self) -> Format:
        """Format of its results."""
        return self.core.settings.format

    @property
    def rounding(self) -> Rounding:
        """How its results are rounded."""
        return self.core.settings.rounding

    def replace(self, **changes: Any) -> Context:
        """A fresh context with some choices changed: no flags, operation 0, the same source.

        >>> Context("binary16").replace(rounding="RTZ")
        Context(binary16, rounding=RTZ)
        """
        choices = self._choices()
        if "seed" not in changes:
            choices["bits"] = self.core.source
        unknown = sorted(set(changes) - {*choices, "seed", "bits"})
        if unknown:
            raise TypeError(
                f"{unknown[0]!r} is not a choice of a Context; "
                f"use one of {', '.join([*choices, 'seed'])}"
            )
        return Context(**(choices | changes))

    def _choices(self) -> dict[str, Any]:
        others = {"traps": self.traps, "count": self.counts is not None, "asarray": self.asarray}
        return self.core.settings.choices() | others

    def in_format(self, fmt: Format | str) -> Context:
        """This context in another format: flags, counts and random bits are one and the same.

        binary64, the native reference, has none of them; every other value is exact there.

        >>> half = Context("binary16", rounding="SR")
        >>> x = half.in_format("bfloat16").array([0.1]); half.flags, half.operation
        (<Flags.INEXACT: 1>, 1)
        """
        fmt = find_number_format(fmt)
        if fmt == self.format:
            return self
        if fmt == BINARY64:
            return Context(BINARY64)
        core, other = self.core, Context.__new__(Context)
        settings, count = core.settings.with_format(fmt), core.counts is not None
        other.core = Core(other, settings, core.source, core.traps, count=count)
        other.core.share(core)
        other.core.asarray = core.asarray
        return other

    def spawn(self, k: int) -> Context:
        """The k-th child: the same choices, independent random bits."""
        return self.replace(bits=self.core.source.spawn(k))

    # What operations left behind ------------------------------------------------------------

    @property
    def flags(self) -> Flags:
        """Flags raised since they were last lowered; assign to set or lower them."""
        return self.core.flags

    @flags.setter
    def flags(self, flags: Flags) -> None:
        self.core.flags = flags

    def clear_flags(self) -> None:
        """Lower every flag."""
        self.core.clear_flags()

    @property
    def traps(self) -> Flags:
        """Flags that stop an operation; assign to arm or disarm them."""
        return self.core.traps

    @traps.setter
    def traps(self, traps: Flags) -> None:
        self.core.traps = traps

    @property
    def asarray(self) -> str:
        """Whether Arrays become ndarrays: "refuse", "warn" or "allow"; assign to change it."""
        return self.core.asarray.choice

    @asarray.setter
    def asarray(self, choice: str) -> None:
        self.core.asarray = AsArray(choice)

    @property
    def counts(self) -> Counts | None:
        """Flags, zeros and subnormals of each operation, with `count=True`."""
        return self.core.counts

    @property
    def operation(self) -> int:
        """Number of the next stochastic operation; assign to repeat or skip some."""
        return self.core.clock.operation

    @operation.setter
    def operation(self, number: int) -> None:
        self.core.clock.operation = number

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Names that moved, for one more version."""
            if name in _MOVED:
                return attrgetter(_MOVED[name])(self)
            raise AttributeError(
                f"'Context' object has no attribute {name!r}", name=name, obj=self
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (
            self._choices(), self.core.source, self.flags, self.operation, self.counts,
        )

    # Values ---------------------------------------------------------------------------------

    def array(self, values: ArrayLike | Array, out: Out = None) -> Array:
        """Values of the format: floats, integers, packed storage or an Array; each rounded once.

        Shapes    as given.
        Flags     INVALID for signalling NaN; the rest from the rounding.
        Raises    TypeError for complex, object, string and longdouble input.
        Source    IEEE 754-2019 §5.4.2 convertFormat, convertFromInt.
        """
        if isinstance(values, Array):
            name = "copy" if values.format == self.format else "convert"
            return self.core.rounded(name, [values.carrier], out)
        if isinstance(values, (list, tuple)):
            values = values_in(values)
        return self.core.rounded("convert", [floats(values, self.core.settings.native)], out)

    def constant(self, value: Scalar) -> Array:
        """A Python number in this format, to nearest even: no flags, no random bits.

        Beyond the largest finite value it becomes what the overflow policy says.
        """
        return Array(self.core.constant(checked_number("value", value)).copy(), self)

    def decimal(self, text: str | Sequence[str]) -> Array:
        """Values from decimal (or fraction) strings, each with exactly one rounding.

        >>> Context("binary16").decimal("0.1").values
        array(0.09997559, dtype=float32)
        """
        texts = [text] if isinstance(text, str) else text
        if not isinstance(texts, (list, tuple, np.ndarray)):
            raise TypeError(
                f"text={text!r} is no string; give digits as in '0.1', or numbers to ctx.array"
            )
        shape = () if isinstance(text, str) else (len(texts),)
        exact = [decimal(t, self.core.settings.native) for t in texts]
        return self.array(np.array(exact, np.float64).reshape(shape))

    def zeros(self, shape: int | tuple[int, ...]) -> Array:
        """+0 in every element."""
        carrier = self.format.carrier
        return Array(np.zeros(checked_shape(shape, carrier.itemsize), carrier), self)

    def ones(self, shape: int | tuple[int, ...]) -> Array:
        """1 in every element."""
        return self.full(shape, 1)

    def full(self, shape: int | tuple[int, ...], value: Scalar) -> Array:
        """A Python number in every element: a constant, to nearest, without flags.

        Raises    ValueError for a finite number beyond the largest finite value.
        """
        if isinstance(value, np.ndarray):
            raise TypeError(f"value is an array of {value.dtype}; give one number, or ctx.array(…)")
        (carrier,) = self.core.carriers((value,))
        extents = checked_shape(shape, self.format.carrier.itemsize)
        return Array(np.full(extents, carrier, self.format.carrier), self)

    def arange(self, start: Scalar, stop: Scalar | None = None, step: Scalar = 1) -> Array:
        """start, start + step, ... before stop; with one argument from 0 to it.

        Rounding  each exact start + k*step once, by this context's rounding, as `array`.
        Flags     of these roundings.

        >>> Context("binary16").arange(0, 0.3, 0.1)
        Array([0.        , 0.09997559, 0.19995117], binary16)
        """
        checked_number("step", step)
        first, end = (0, start) if stop is None else (start, stop)
        return self.array(progression(first, end, step=step, native=self.core.settings.native))

    def linspace(
        self, start: Scalar, stop: Scalar, num: int = 50, *, endpoint: bool = True
    ) -> Array:
        """num numbers from start to stop in equal steps; stop is one of them if `endpoint`.

        Rounding  each exact number once, by this context's rounding, as `array`.
        """
        native = self.core.settings.native
        return self.array(progression(start, stop, num=num, endpoint=endpoint, native=native))

    def unpack(self, packed: ArrayLike) -> Array:
        """The values of packed storage, exactly: what `Array.to_numpy` or `np.save` stored.

        Raises    TypeError for the storage of another format.

        >>> x = Context("bfloat16").array([0.1])
        >>> Context("bfloat16").unpack(x.to_numpy())
        Array([0.10009766], bfloat16)
        """
        array = codes.unmasked(packed)
        # numpy's files know no ml_dtypes: they come back as raw bytes or codes.
        if array.dtype.type is np.void and array.dtype.itemsize == self.format.packed.itemsize:
            array = array.view(self.format.packed)
        if array.dtype == self.format.code_dtype:
            return Array(codes.from_codes(array, self.format), self)
        return Array(codes.unpack(array, self.format), self)

    def wrap(self, values: Carrier, *, copy: bool = True) -> Array:
        """An Array of carrier values that the format holds already (checked).

        copy   False: around this very memory, into which nothing else may then put numbers.
        """
        array = codes.unmasked(values)
        if array.dtype != self.format.carrier:
            raise TypeError(
                f"values have dtype {array.dtype}; "
                f"{self.format.name} is carried in {self.format.carrier}"
            )
        if not codes.is_held(array, self.format).all():
            raise ValueError(f"values are not all in {self.format.name}; round them with ctx.array")
        return Array(array.copy() if copy else array, self)

    def quantize(
        self, x: ArrayLike | Array, block: Block | str, axis: int = -1, *,
        rounding: Rounding | str | None = None, transform: Transform | str | None = None,
        flags: bool = False,
    ) -> BlockArray:
        """x as codes under the scales of blocks along an axis, by this context's random bits.

        rounding   of the elements; None: this context's.

        The rest is as for `fpsim.quantize`; flags of the elements are raised here, and may trap.

        >>> sr = Context("bfloat16", rounding="SR")
        >>> q = sr.quantize(sr.array([0.3] * 32), "mxfp8"); sr.operation, sr.flags
        (2, <Flags.INEXACT: 1>)
        """
        return quantize_in(self.core, x, block, axis, rounding, transform, flags=flags)

    def iterate(
        self, step: Callable[..., Any], x: Any, n: int, watch: Any = None
    ) -> Iteration:
        """x = step(x), n times, as one kernel: the step is called twice to see what it does.

        step    a function of Arrays of this context that returns the next ones: + - * /, sqrt, fma,
                whole powers, negative, absolute, and whatever moves numbers; Arrays and numbers
                from outside are constants.
        x       an Array, or a tuple of them, which step takes as arguments and returns; unchanged.
        watch   every how many steps the state is kept, or numbers of steps.

        Rounding  of each operation, as if called in a loop; flags, random bits, traps and numbers
                  of operations too. It ends where a step changes nothing, and could not have.
        Raises    TypeError for a step that does more, or asks for a number.

        >>> half = Context("binary16")
        >>> run = half.iterate(lambda x: x * 0.5 + 1, half.array([0.0, 5.0]), 10**6, watch=[0, 1])
        >>> run.x.tolist(), run.fixed, run.watched.tolist()
        ([2.0, 2.0], 12, [[0.0, 5.0], [1.0, 3.5]])
        """
        return iterate(self, step, x, n, watch)

    def to_integers(self, x: Operand, dtype: DTypeLike) -> NDArray[Any]:
        """x as integers of 8 to 64 bits, rounded to whole numbers by this context's rounding.

        Flags     INVALID alone for NaN, infinity and out of range (the result is then the smallest
                  signed, the largest unsigned number, as on x86); else INEXACT where rounded.

        >>> half = Context("binary16")
        >>> half.to_integers(half.array([2.5, 3.5, -7.0]), "int32")
        array([ 2,  4, -7], dtype=int32)
        """
        return operations.to_integers(self.core, x, dtype)

    # Arithmetic -----------------------------------------------------------------------------

    def add(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x + y, rounded once.

        Flags     INVALID for inf - inf; the rest from the rounding.
        Source    IEEE 754-2019 §5.4.1 addition.
        """
        core = self.core
        return core.rounded("add", core.carriers((x, y)), out)

    def subtract(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x - y, rounded once.

        Source    IEEE 754-2019 §5.4.1 subtraction.
        """
        core = self.core
        return core.rounded("subtract", core.carriers((x, y)), out)

    def multiply(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x * y, rounded once.

        Flags     INVALID for 0 * inf; the rest from the rounding.
        Source    IEEE 754-2019 §5.4.1 multiplication.
        """
        core = self.core
        return core.rounded("multiply", core.carriers((x, y)), out)

    def divide(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x / y, rounded once.

        Flags     DIVBYZERO for finite / 0, INVALID for 0/0 and inf/inf.
        Source    IEEE 754-2019 §5.4.1 division.
        """
        core = self.core
        return core.rounded("divide", core.carriers((x, y)), out)

    def sqrt(self, x: Operand, out: Out = None) -> Array:
        """The square root, rounded once; sqrt(-0) is -0.

        Flags     INVALID for x < 0.
        Source    IEEE 754-2019 §5.4.1 squareRoot.
        """
        return self.core.rounded("sqrt", self.core.carriers((x,)), out)

    def fma(self, x: Operand, y: Operand, z: Operand, out: Out = None) -> Array:
        """Fused multiply-add x*y + z, rounded once.

        Shapes    x, y, z broadcast; the result has the broadcast shape.
        Rounding  once, in this context; product and sum before it are exact.
        Error     at most ulp/2 (RNE, RNA), less than one ulp otherwise.
        Flags     INVALID for inf*0, inf-inf and signalling NaN; the rest from the rounding.
        Source    IEEE 754-2019 §5.4.1 fusedMultiplyAdd.

        >>> half = Context("binary16")
        >>> half.fma(half.array(0.1), 10.0, -1.0).values      # multiply then add gives 0
        array(-0.00024414, dtype=float32)
        """
        if self.core.settings.native:
            raise TypeError(
                "fma is not offered in binary64, the native reference; use a narrower format"
            )
        return self.core.rounded("fma", self.core.carriers((x, y, z)), out)

    def power(self, x: Operand, n: Operand, out: Out = None) -> Array:
        """x to a whole power: ((x*x)*x)*..., every product rounded; 1 / x**-n for negative n.

        x**0 is 1, also for NaN, and x**1 is x, both without flags; x**0.5 is sqrt(x). Where n is
        an Array, each x**n is one operation.

        Rounding  abs(n) - 1 products from the left, each an operation; a division where n < 0. An
                  Array of n: once.
        Flags     those of the products and the division. An Array of n: INVALID for a negative
                  number to a power that is not whole, DIVBYZERO for a zero to a negative one.
        Raises    TypeError for a number n that is not whole, ValueError beyond 4096.
        Source    the order is ours; IEEE 754-2019 §9.2 pown(x, 0) = 1, pow.

        >>> half = Context("binary16")
        >>> half.array([3.0, 0.1]) ** 3
        Array([2.70000000e+01, 9.99450684e-04], binary16)
        """
        return operations.power(self.core, x, n, out)

    def ieee_remainder(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x - n y with n the whole number nearest to x / y, ties to even; always exact.

        Flags     INVALID for infinite x and zero y.
        Source    IEEE 754-2019 §5.3.1 remainder.

        >>> half = Context("binary16")
        >>> float(half.ieee_remainder(half.array(5.0), 3.0))
        -1.0
        """
        return operations.remainder(self.core, "ieee_remainder", x, y, out)

    def fmod(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x - n y with n = x / y cut toward zero, as C's fmod; always exact.

        >>> half = Context("binary16")
        >>> float(half.fmod(half.array(5.0), 3.0))
        2.0
        """
        return operations.remainder(self.core, "fmod", x, y, out)

    def remainder(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x - floor(x / y) y, rounded once: `%` of Python and np.remainder, of the sign of y.

        Rounding  once; inexact only where the signs of x and y differ.
        Flags     INVALID for infinite x and zero y; the rest from the rounding.
        Source    the definition is Python's; IEEE 754 has `ieee_remainder`, C has `fmod`.

        >>> half = Context("binary16")
        >>> half.remainder(half.array([5.25, -5.25, -0.0001]), 1.0)
        Array([0.25, 0.75, 1.  ], binary16)
        """
        return operations.floored_remainder(self.core, x, y, out)

    # Whole numbers --------------------------------------------------------------------------

    def round_to_integral(self, x: Operand, out: Out = None) -> Array:
        """x rounded to a whole number by this context's rounding.

        Flags     INEXACT where it changes (IEEE's roundToIntegralExact).
        Source    IEEE 754-2019 §5.9.
        """
        carriers = self.core.carriers((x,))
        return self.core.rounded("round_to_integral", carriers, out, integers.round_to_integral)

    def floor(self, x: Operand, out: Out = None) -> Array:
        """The largest whole number not above x, as far as the format has it.

        Flags     INVALID for a signalling NaN; no INEXACT.
        Source    IEEE 754-2019 §5.9 roundToIntegralTowardNegative.

        >>> half = Context("binary16")
        >>> half.floor(half.array([1.5, -1.5])), half.flags.names
        (Array([ 1., -2.], binary16), [])
        """
        return operations.whole(self.core, "floor", x, out)

    def ceil(self, x: Operand, out: Out = None) -> Array:
        """The smallest whole number not below x (roundToIntegralTowardPositive); see `floor`."""
        return operations.whole(self.core, "ceil", x, out)

    def trunc(self, x: Operand, out: Out = None) -> Array:
        """x without its fraction (roundToIntegralTowardZero); see `floor`."""
        return operations.whole(self.core, "trunc", x, out)

    # Signs ----------------------------------------------------------------------------------

    def negative(self, x: Operand, out: Out = None) -> Array:
        """-x: the sign bit flipped, no flags."""
        return operations.with_sign(self.core, "negative", x, out)

    def absolute(self, x: Operand, out: Out = None) -> Array:
        """|x|: the sign bit cleared, no flags."""
        return operations.with_sign(self.core, "absolute", x, out)

    def copysign(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """x with the sign bit of y, no flags; the zero and the NaN of a format with one zero stay.

        Source    IEEE 754-2019 §5.5.1 copySign.
        """
        return operations.copysign(self.core, x, y, out)

    def sign(self, x: Operand, out: Out = None) -> Array:
        """1, -1, +0 for a zero of either sign, and x for a NaN; no flags."""
        return operations.sign(self.core, x, out)

    # Extrema --------------------------------------------------------------------------------

    def maximum(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """The larger; a NaN wins, -0 < +0 (IEEE 754-2019 §9.6 maximum)."""
        return operations.extreme(self.core, "maximum", x, y, out)

    def minimum(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """The smaller; a NaN wins, -0 < +0 (IEEE 754-2019 §9.6 minimum)."""
        return operations.extreme(self.core, "minimum", x, y, out)

    def fmax(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """The larger; the number wins over a NaN (IEEE 754-2019 §9.6 maximumNumber)."""
        return operations.extreme(self.core, "fmax", x, y, out)

    def fmin(self, x: Operand, y: Operand, out: Out = None) -> Array:
        """The smaller; the number wins over a NaN (IEEE 754-2019 §9.6 minimumNumber)."""
        return operations.extreme(self.core, "fmin", x, y, out)

    def clip(
        self, x: Operand, least: Operand | None = None, most: Operand | None = None, out: Out = None
    ) -> Array:
        """minimum(maximum(x, least), most); None: no bound on that side.

        Flags     INVALID for signalling NaN; a NaN anywhere gives NaN.
        """
        return operations.clip(self.core, x, least, most, out)

    def max(
        self, x: Array, axis: Axis = None, *, keepdims: bool = False, number_wins: bool = False,
        out: Out = None,
    ) -> Array:
        """The largest over axes (default: all): `maximum`, or `fmax` if `number_wins`.

        Flags     INVALID for a signalling NaN among several elements.
        Raises    ValueError for no elements.

        >>> half = Context("binary16")
        >>> half.max(half.array([[1, 5], [7, 3]]), 0)
        Array([7., 5.], binary16)
        """
        name = "fmax" if number_wins else "maximum"
        return operations.extreme_along(self.core, name, x, axis, keepdims, out)

    def min(
        self, x: Array, axis: Axis = None, *, keepdims: bool = False, number_wins: bool = False,
        out: Out = None,
    ) -> Array:
        """The smallest over axes (default: all): `minimum`, or `fmin` if `number_wins`."""
        name = "fmin" if number_wins else "minimum"
        return operations.extreme_along(self.core, name, x, axis, keepdims, out)

    def argmax(self, x: Array, axis: int | None = None, *, keepdims: bool = False) -> NDArray[Any]:
        """Index of the first element that is the `maximum`: of a NaN if there is one; -0 < +0."""
        return operations.place_along(self.core, "maximum", x, axis, keepdims)

    def argmin(self, x: Array, axis: int | None = None, *, keepdims: bool = False) -> NDArray[Any]:
        """Index of the first element that is the `minimum`: of a NaN if there is one; -0 < +0."""
        return operations.place_along(self.core, "minimum", x, axis, keepdims)

    # Comparisons ----------------------------------------------------------------------------

    def equal(self, x: Operand, y: Operand, signalling: bool = False) -> NDArray[np.bool_]:
        """x == y: compareQuietEqual, or compareSignalingEqual if `signalling`.

        Flags     INVALID for a signalling NaN; if `signalling`, for every NaN.
        Source    IEEE 754-2019 §5.6.1 and §5.11; a relation is negated by `~`.
        """
        return self.core.compare("equal", x, y, signalling)

    def not_equal(self, x: Operand, y: Operand, signalling: bool = False) -> NDArray[np.bool_]:
        """x != y, True for a NaN; quiet unless `signalling`."""
        return self.core.compare("not_equal", x, y, signalling)

    def less(self, x: Operand, y: Operand, signalling: bool = True) -> NDArray[np.bool_]:
        """x < y; every NaN raises INVALID unless `signalling=False`."""
        return self.core.compare("less", x, y, signalling)

    def less_equal(self, x: Operand, y: Operand, signalling: bool = True) -> NDArray[np.bool_]:
        """x <= y; every NaN raises INVALID unless `signalling=False`."""
        return self.core.compare("less_equal", x, y, signalling)

    def greater(self, x: Operand, y: Operand, signalling: bool = True) -> NDArray[np.bool_]:
        """x > y; every NaN raises INVALID unless `signalling=False`."""
        return self.core.compare("greater", x, y, signalling)

    def greater_equal(self, x: Operand, y: Operand, signalling: bool = True) -> NDArray[np.bool_]:
        """x >= y; every NaN raises INVALID unless `signalling=False`."""
        return self.core.compare("greater_equal", x, y, signalling)

    def unordered(self, x: Operand, y: Operand) -> NDArray[np.bool_]:
        """Whether x or y is a NaN (compareQuietUnordered); ordered is `~` of it.

        Flags     INVALID for a signalling NaN.

        >>> half = Context("binary16")
        >>> half.unordered(half.array([1.0, float("nan")]), 2.0)
        array([False,  True])
        """
        return self.core.compare("unordered", x, y, False)

    def total_order(self, x: Operand, y: Operand, *, magnitudes: bool = False) -> NDArray[np.bool_]:
        """Where x stands before y or is the same: -NaN, -inf … -0, +0 … inf, NaN; no flags.

        magnitudes   of |x| and |y| (totalOrderMag).

        Source    IEEE 754-2019 §5.10 totalOrder.

        >>> half = Context("binary16")
        >>> half.total_order(half.array([-0.0, 0.0]), half.array([0.0, -0.0]))
        array([ True, False])
        """
        return operations.total_order(self.core, x, y, magnitudes)

    # Functions ------------------------------------------------------------------------------

    def exp(self, x: Operand, out: Out = None) -> Array:
        """e**x, rounded once; exp(0) = 1 is exact.

        >>> single = Context("binary32")
        >>> single.exp(single.array([0.0, 1.0]))
        Array([1.        , 2.71828175], binary32)
        """
        return operations.elementary_function(self.core, "exp", x, out)

    def expm1(self, x: Operand, out: Out = None) -> Array:
        """e**x - 1, rounded once, without the loss of that subtraction; expm1(±0) = ±0.

        >>> half = Context("binary16")
        >>> half.expm1(half.array([0.0009765625])), half.exp(half.array([0.0009765625])) - 1
        (Array([0.00097752], binary16), Array([0.00097656], binary16))
        """
        return operations.elementary_function(self.core, "expm1", x, out)

    def log(self, x: Operand, out: Out = None) -> Array:
        """The natural logarithm, rounded once; log(1) = 0 is exact, log(0) a pole.

        Flags     DIVBYZERO for a zero, INVALID for x < 0; the rest from the rounding.
        """
        return operations.elementary_function(self.core, "log", x, out)

    def log1p(self, x: Operand, out: Out = None) -> Array:
        """The natural logarithm of 1 + x, rounded once; log1p(±0) = ±0, log1p(-1) is a pole.

        Flags     DIVBYZERO for -1, INVALID for x < -1; the rest from the rounding.
        """
        return operations.elementary_function(self.core, "log1p", x, out)

    def sinh(self, x: Operand, out: Out = None) -> Array:
        """The hyperbolic sine, rounded once; sinh(±0) = ±0."""
        return operations.elementary_function(self.core, "sinh", x, out)

    def cosh(self, x: Operand, out: Out = None) -> Array:
        """The hyperbolic cosine, rounded once; cosh(0) = 1 is exact."""
        return operations.elementary_function(self.core, "cosh", x, out)

    def tanh(self, x: Operand, out: Out = None) -> Array:
        """The hyperbolic tangent, rounded once; tanh(±0) = ±0."""
        return operations.elementary_function(self.core, "tanh", x, out)

    def sigmoid(self, x: Operand, out: Out = None) -> Array:
        """1 / (1 + e**-x), rounded once; sigmoid(0) = 1/2 is exact.

        >>> half = Context("binary16")
        >>> half.sigmoid(half.array([0.0, 1.0]))
        Array([0.5       , 0.73095703], binary16)
        """
        return operations.elementary_function(self.core, "sigmoid", x, out)

    def rsqrt(self, x: Operand, out: Out = None) -> Array:
        """1 / sqrt(x), rounded once; a pole at ±0, whose sign the value has.

        Flags     DIVBYZERO for a zero, INVALID for x < 0; the rest from the rounding.
        """
        return operations.elementary_function(self.core, "rsqrt", x, out)

    def erf(self, x: Operand, out: Out = None) -> Array:
        """2/sqrt(pi) times the integral of e**(-t*t) from 0 to x, rounded once; erf(±0) = ±0."""
        return operations.elementary_function(self.core, "erf", x, out)

    def sin(self, x: Operand, out: Out = None) -> Array:
        """The sine of x radians, rounded once, for arguments of any size; sin(±0) = ±0.

        Flags     INVALID for infinities; the rest from the rounding.

        >>> half = Context("binary16")
        >>> half.sin(half.array([0.5, 65504.0]))
        Array([0.47949219, 0.97558594], binary16)
        """
        return operations.elementary_function(self.core, "sin", x, out)

    def cos(self, x: Operand, out: Out = None) -> Array:
        """The cosine of x radians, rounded once, for arguments of any size; cos(0) = 1 is exact.

        Flags     INVALID for infinities; the rest from the rounding.
        """
        return operations.elementary_function(self.core, "cos", x, out)

    # Sums and products ----------------------------------------------------------------------

    def sum(
        self, x: Array, axis: Axis = None, order: str = "sequential", *, block: int = 256,
        keepdims: bool = False, out: Out = None,
    ) -> Array:
        """Sum over axes, every addition rounded; see `fpsim.linalg.sum`.

        >>> half = Context("binary16")
        >>> half.sum(half.array([2048.0, 1.0, 1.0])).values.tolist()
        2048.0
        """
        return rounded_products.sum(
            x, axis, order, context=self, block=block, keepdims=keepdims, out=out
        )

    def mean(
        self, x: Array, axis: Axis = None, order: str = "sequential", *, block: int = 256,
        keepdims: bool = False, out: Out = None,
    ) -> Array:
        """Sum over axes, then one division; see `fpsim.linalg.mean`."""
        return rounded_products.mean(
            x, axis, order, context=self, block=block, keepdims=keepdims, out=out
        )

    def dot(self, x: Array, y: Array, *, fused: bool = False, kahan: bool = False) -> Array:
        """Inner product of two vectors, every operation rounded; see `fpsim.linalg.dot`."""
        return rounded_products.dot(x, y, context=self, fused=fused, kahan=kahan)

    def matmul(
        self,
        a: Array | BlockArray,
        b: Array | BlockArray,
        unit: str | MatrixUnit | None = None,
        *,
        to: Format | str | None = None,
        fused: bool = False,
        kahan: bool = False,
        partials: Format | str | None = None,
        accumulator: Array | None = None,
        scale: int = 0,
        subnormals: str | None = None,
        stochastic_stores: bool = True,
        out: Out = None,
    ) -> Array:
        """The product a @ b: through a unit, or without one rounded after every operation.

        a, b            Arrays, or BlockArrays for a unit that takes blocks.

        fused, kahan    without a unit, as for `fpsim.linalg.rounded_matmul`.
        to, partials, accumulator, scale, subnormals, stochastic_stores    of a unit, as for
                        `fpsim.linalg.matmul`.

        Raises    ValueError for choices of the other kind.

        >>> half = Context("binary16")
        >>> row, column = half.array([[2048.0, 1.0, 1.0]]), half.array([[1.0]] * 3)
        >>> [half.matmul(row, column, u).values.tolist() for u in (None, "V100_F16_F32")]
        [[[2048.0]], [[2050.0]]]
        """
        choices = unit_products.UnitChoices(
            to, partials, accumulator, scale, subnormals, stochastic_stores
        )
        return unit_products.any_matmul(self, a, b, unit, choices, out, fused=fused, kahan=kahan)

    def k_split(
        self, a: Array, b: Array, unit: str | MatrixUnit, parts: int, *,
        to: Format | str | None = None, partials: Format | str | None = None, scale: int = 0,
        subnormals: str | None = None, out: Out = None,
    ) -> Array:
        """a @ b with K split over tiles and their partials reduced; see `fpsim.linalg.k_split`."""
        return unit_products.k_split(
            a, b, unit, parts, context=self, to=to, partials=partials, scale=scale,
            subnormals=subnormals, out=out,
        )

    def conv2d(
        self, x: Array, w: Array, unit: str | MatrixUnit, *, stride: Stride = 1,
        padding: Padding = "SAME", groups: int = 1, dilation: Stride = 1,
        to: Format | str | None = None, partials: Format | str | None = None, scale: int = 0,
        subnormals: str | None = None, out: Out = None,
    ) -> Array:
        """The convolution of images with kernels through a unit; see `fpsim.linalg.conv2d`."""
        return convolutions.conv2d(
            x, w, unit, stride=stride, padding=padding, groups=groups, dilation=dilation,
            context=self, to=to, partials=partials, scale=scale, subnormals=subnormals, out=out,
        )


def _restore(
    choices: dict[str, Any], source: BitSource, flags: Flags, operation: int, counts: Counts | None
) -> Context:
    """A context as it was when it was pickled; a device's comes back as a plain one."""
    context = Context(**choices, bits=source)
    context.flags, context.operation, context.core.counts = flags, operation, counts
    return context
