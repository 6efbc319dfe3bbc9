"""Context: the object that holds everything an operation depends on, and what operations left behind.

A `Context` joins `Settings` (format, rounding, policies) with state: sticky flags, armed traps,
counts, and the source of random bits. As in `decimal`, there is no hidden global mode.

Source    IEEE 754-2019 §4 and §7; docs/semantics.md §2 and §3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fpsim import codes, compare, integers
from fpsim.arithmetic import Carrier, apply, check_out
from fpsim.array import Array
from fpsim.bits import BitSource, Philox
from fpsim.counts import Counts
from fpsim.flags import FloatingPointTrap, Flags
from fpsim.formats import BINARY64, CATALOGUE, Format
from fpsim.remainder import remainder
from fpsim.rounding import RNE, Rounding
from fpsim.settings import Settings

__all__ = ["Clock", "Context"]

Scalar = bool | int | float
Operand = Array | Scalar
#: Computes a result into `out` (or new memory) and the flags of each element if asked.
Compute = Callable[[Carrier | None, NDArray[np.uint8] | None], tuple[Any, int]]

_CHOICES = tuple(f.name for f in fields(Settings) if f.init)
_FORMAT_OF_STORAGE = {
    f.packed: f for f in CATALOGUE.values() if isinstance(f, Format) and f.storage
}


class Clock:
    """Number of the next stochastic operation; the contexts of one machine share a clock."""

    __slots__ = ("operation",)

    def __init__(self) -> None:
        self.operation = 0


class Context:
    """Arithmetic in one format: rounding, policies, flags, traps and random bits.

    format, rounding, overflow, subnormals, tininess, nan, infinite_input, divide_by_zero,
    quiet_nan_raises    as in `Settings`.
    traps     flags that stop an operation with `FloatingPointTrap`; nothing is published then.
    seed      key of the Philox random bits, 0 to 2**64 - 1; `bits` gives another source instead.
    count     count flags, zeros and subnormals of each operation in `counts`.

    A context is for one thread; `spawn(k)` makes independent children.

    >>> from fpsim.formats import BINARY16
    >>> half = Context(BINARY16)
    >>> x = half.array([0.0004]); (x + 0.25 - 0.25).values
    array([0.00048828], dtype=float32)
    >>> half.flags
    <Flags.INEXACT: 1>
    """

    def __init__(
        self,
        format: Format,
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
    ) -> None:
        self.settings = Settings(
            format, rounding, overflow, subnormals, tininess, nan, infinite_input, divide_by_zero,
            quiet_nan_raises,
        )  # fmt: skip
        self.traps = Flags(traps)
        if self.settings.format == BINARY64 and (self.traps or count):
            raise ValueError(
                "format=binary64 computes natively and raises no flags; leave traps and count off"
            )
        self.source: BitSource = Philox(seed) if bits is None else bits
        self.flags = Flags.NONE
        self.counts: Counts | None = Counts() if count else None
        self.clock = Clock()
        self._constants: dict[tuple[type, Scalar], Array] = {}

    # What it is -----------------------------------------------------------------------------

    @property
    def format(self) -> Format:
        return self.settings.format

    @property
    def rounding(self) -> Rounding:
        return self.settings.rounding

    @property
    def operation(self) -> int:
        """Number of the next stochastic operation."""
        return self.clock.operation

    @operation.setter
    def operation(self, number: int) -> None:
        self.clock.operation = number

    @property
    def seed(self) -> int | None:
        """Key of the Philox bits; None with another source."""
        return self.source.seed if isinstance(self.source, Philox) else None

    def __repr__(self) -> str:
        usual = Settings(self.format)
        shown = [
            f"{name}={getattr(self.settings, name)!r}"
            for name in _CHOICES[1:]
            if getattr(self.settings, name) != getattr(usual, name)
        ]
        return f"Context({', '.join([self.format.name, *shown])})"

    def replace(self, **changes: Any) -> Context:
        """A fresh context with some choices changed: no flags, operation 0, the same source.

        >>> from fpsim.formats import BINARY16
        >>> Context(BINARY16).replace(rounding="RTZ")
        Context(binary16, rounding=RTZ)
        """
        keep: dict[str, Any] = {name: getattr(self.settings, name) for name in _CHOICES}
        if "format" in changes and changes["format"] != self.format:
            # The habits of the old format are not choices for the new one.
            usual = Settings(self.format)
            for name in ("overflow", "infinite_input"):
                if keep[name] == getattr(usual, name):
                    keep[name] = None
        keep |= {"traps": self.traps, "count": self.counts is not None}
        if "seed" not in changes:
            keep["bits"] = self.source
        unknown = set(changes) - {*keep, "seed", "bits"}
        if unknown:
            raise TypeError(
                f"{sorted(unknown)[0]!r} is not a choice of a Context; use one of {', '.join(keep)}, seed"
            )
        return Context(**(keep | changes))

    def spawn(self, k: int) -> Context:
        """The k-th child: the same choices, independent random bits."""
        return self.replace(bits=self.source.spawn(k))

    def clear_flags(self) -> None:
        """Lower every flag."""
        self.flags = Flags.NONE

    # Values ---------------------------------------------------------------------------------

    def array(self, values: ArrayLike | Array) -> Array:
        """Values of the format: each rounded once, by this context's rounding, raising flags.

        Shapes    as given.
        Raises    TypeError for complex, object, string and longdouble input.
        """
        return self.convert(values)

    def decimal(self, text: str | Sequence[str]) -> Array:
        """Values from decimal (or fraction) strings, each with exactly one rounding.

        >>> from fpsim.formats import BINARY16
        >>> Context(BINARY16).decimal("0.1").values
        array(0.09997559, dtype=float32)
        """
        shape = () if isinstance(text, str) else (len(text),)
        exact = [_to_odd(Fraction(t)) for t in ([text] if isinstance(text, str) else text)]
        return self._convert("convert", np.array(exact, np.float64).reshape(shape), None)

    def zeros(self, shape: int | tuple[int, ...]) -> Array:
        """+0 in every element."""
        return Array(np.zeros(shape, self.format.carrier), self)

    def wrap(self, values: Carrier) -> Array:
        """An Array around carrier values that the format holds already (checked, not copied)."""
        array = np.asarray(values)
        if array.dtype != self.format.carrier:
            raise TypeError(
                f"values have dtype {array.dtype}; {self.format.name} is carried in {self.format.carrier}"
            )
        if not codes.is_held(array, self.format).all():
            raise ValueError(f"values are not all in {self.format.name}; round them with ctx.array")
        return Array(array, self)

    def constant(self, value: Scalar) -> Array:
        """A Python number in this format: nearest even, no flags, no random bits, always the same."""
        key = (type(value), value)
        made = self._constants.get(key)
        if made is None or value == 0:  # 0.0 and -0.0 are one key
            settings = _nearest(self.settings)
            carrier, _ = apply("convert", (_scalar(value),), settings, track=False)
            made = Array(carrier, self)
            if len(self._constants) < 256:
                self._constants[key] = made
        return made

    def _operands(self, operands: Sequence[Operand]) -> list[Carrier]:
        """Carriers of operands, after the checks that nothing is promoted."""
        carriers = []
        for value in operands:
            if isinstance(value, Array):
                if value.format is not self.format and value.format != self.format:
                    raise TypeError(_mixed(operands, self.format))
                carriers.append(value.values)
            elif isinstance(value, (bool, int, float)):
                carriers.append(self.constant(value).values)
            else:
                raise TypeError(
                    f"{type(value).__name__} is not an Array of {self.format.name}; "
                    "convert with ctx.array(y)"
                )
        return carriers

    # One operation --------------------------------------------------------------------------

    def _elementwise(
        self, name: str, operands: Sequence[Operand], out: Array | Carrier | None
    ) -> Array:
        carriers = self._operands(operands)
        return self._rounded(name, carriers, self.settings, out)

    def _rounded(
        self,
        name: str,
        carriers: list[Carrier],
        settings: Settings,
        out: Array | Carrier | None,
        *,
        wide: Carrier | None = None,
        found: NDArray[np.uint8] | None = None,
    ) -> Array:
        """One rounding per element, with this context's random bits where it is stochastic.

        A function computed elsewhere gives its values in binary64 as `wide`, and the flags that
        it found besides those of the rounding.
        """
        kernel, given = (name, carriers) if wide is None else ("convert", [wide])
        random = None
        seed = 0
        if settings.rounding.stochastic:
            shape = np.broadcast_shapes(*(c.shape for c in carriers))
            random = self.source.draw(self.operation, shape, settings.random_most)
            seed = self.source.seed if isinstance(self.source, Philox) else 0

        def compute(target: Carrier | None, marks: NDArray[np.uint8] | None) -> tuple[Carrier, int]:
            values, flags = apply(
                kernel, given, settings, out=target, element_flags=marks, seed=seed,
                number=self.operation, random=random,
            )  # fmt: skip
            if found is not None:
                flags |= _fold(found if marks is None else marks | found, marks)
            return values, flags

        result = self._publish(name, carriers, compute, out)
        if settings.rounding.stochastic:
            self.source.advance()
            self.operation += 1
        return result

    def _publish(
        self, name: str, operands: list[Carrier], compute: Compute, out: Array | Carrier | None
    ) -> Array:
        """Run an operation, fold its flags, and let its result be seen unless a trap fires."""
        target = out.values if isinstance(out, Array) else out
        if isinstance(out, Array) and out.format != self.format:
            raise TypeError(f"out is {out.format.name}, this context computes {self.format.name}")
        if not self.traps and self.counts is None:
            values, flags = compute(target, None)
        else:
            values, flags = self._watched(name, operands, compute, target)
        if flags & ~self.flags:
            self.flags |= Flags(flags)
        if isinstance(out, Array):
            return out
        return Array(values, self)

    def _watched(
        self, name: str, operands: list[Carrier], compute: Compute, target: Carrier | None
    ) -> tuple[Carrier, int]:
        """With traps or counts: every element's flags, scratch memory, then publication."""
        shape = np.broadcast_shapes(*(o.shape for o in operands))
        if target is not None:
            check_out(target, shape, self.format.carrier, operands)
        marks = np.zeros(shape, np.uint8)
        values, _ = compute(None, marks)
        flags = int(np.bitwise_or.reduce(marks, axis=None)) if marks.size else 0
        if flags & self.traps:
            self.flags |= Flags(flags)
            raise self._trap(name, Flags(flags), marks, operands)
        if self.counts is not None:
            self.counts.add(name, values, marks, self.format)
        if target is not None:
            target[...] = values
            values = target
        return values, flags

    def _trap(
        self, name: str, flags: Flags, marks: NDArray[np.uint8], operands: list[Carrier]
    ) -> FloatingPointTrap:
        guilty = (marks & int(self.traps)) != 0
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(guilty)), marks.shape))
        values = [float(np.broadcast_to(o, marks.shape)[index]) for o in operands]
        return FloatingPointTrap(name, flags, index, values, self.dump())

    def dump(self) -> str:
        """The state that a trap shows."""
        return f"flags {'|'.join(self.flags.names)}; traps {'|'.join(self.traps.names)}"

    # Operations -----------------------------------------------------------------------------

    def add(self, x: Operand, y: Operand, out: Array | Carrier | None = None) -> Array:
        """x + y, rounded once.

        Flags     INVALID for inf - inf; the rest from the rounding.
        Source    IEEE 754-2019 §5.4.1 addition.
        """
        return self._elementwise("add", (x, y), out)

    def subtract(self, x: Operand, y: Operand, out: Array | Carrier | None = None) -> Array:
        """x - y, rounded once.

        Source    IEEE 754-2019 §5.4.1 subtraction.
        """
        return self._elementwise("subtract", (x, y), out)

    def multiply(self, x: Operand, y: Operand, out: Array | Carrier | None = None) -> Array:
        """x * y, rounded once.

        Flags     INVALID for 0 * inf; the rest from the rounding.
        Source    IEEE 754-2019 §5.4.1 multiplication.
        """
        return self._elementwise("multiply", (x, y), out)

    def divide(self, x: Operand, y: Operand, out: Array | Carrier | None = None) -> Array:
        """x / y, rounded once.

        Flags     DIVBYZERO for finite / 0, INVALID for 0/0 and inf/inf.
        Source    IEEE 754-2019 §5.4.1 division.
        """
        return self._elementwise("divide", (x, y), out)

    def sqrt(self, x: Operand, out: Array | Carrier | None = None) -> Array:
        """The square root, rounded once; sqrt(-0) is -0.

        Flags     INVALID for x < 0.
        Source    IEEE 754-2019 §5.4.1 squareRoot.
        """
        return self._elementwise("sqrt", (x,), out)

    def fma(self, x: Operand, y: Operand, z: Operand, out: Array | Carrier | None = None) -> Array:
        """Fused multiply-add x*y + z, rounded once.

        Shapes    x, y, z broadcast; the result has the broadcast shape.
        Rounding  once, in this context; product and sum before it are exact.
        Error     at most ulp/2 (RNE, RNA), less than one ulp otherwise.
        Flags     INVALID for inf*0, inf-inf and signalling NaN; the rest from the rounding.
        Source    IEEE 754-2019 §5.4.1 fusedMultiplyAdd.

        >>> from fpsim.formats import BINARY16
        >>> half = Context(BINARY16)
        >>> half.fma(half.array(0.1), 10.0, -1.0).values      # multiply then add gives 0
        array(-0.00024414, dtype=float32)
        """
        if self.format == BINARY64:
            raise TypeError(
                "fma is not offered in binary64, the native reference; use a narrower format"
            )
        return self._elementwise("fma", (x, y, z), out)

    def round_to_integral(self, x: Operand, out: Array | Carrier | None = None) -> Array:
        """x rounded to a whole number by this context's rounding.

        Flags     INEXACT where it changes (IEEE's roundToIntegralExact).
        Source    IEEE 754-2019 §5.9.
        """
        return self._elementwise("round_to_integral", (x,), out)

    def ieee_remainder(self, x: Operand, y: Operand, out: Array | Carrier | None = None) -> Array:
        """x - n y with n the whole number nearest to x / y, ties to even; always exact.

        Flags     INVALID for infinite x and zero y.
        Source    IEEE 754-2019 §5.3.1 remainder.

        >>> from fpsim.formats import BINARY16
        >>> half = Context(BINARY16)
        >>> float(half.ieee_remainder(half.array(5.0), 3.0))
        -1.0
        """
        return self._remainder("ieee_remainder", x, y, out)

    def fmod(self, x: Operand, y: Operand, out: Array | Carrier | None = None) -> Array:
        """x - n y with n = x / y cut toward zero, as C's fmod; always exact.

        >>> from fpsim.formats import BINARY16
        >>> half = Context(BINARY16)
        >>> float(half.fmod(half.array(5.0), 3.0))
        2.0
        """
        return self._remainder("fmod", x, y, out)

    def _remainder(self, name: str, x: Operand, y: Operand, out: Array | Carrier | None) -> Array:
        a, b = self._operands((x, y))

        def compute(target: Carrier | None, marks: NDArray[np.uint8] | None) -> tuple[Carrier, int]:
            nearest = name == "ieee_remainder"
            return _into(
                target,
                *remainder(a, b, self.settings, nearest=nearest, element_flags=marks),
                (a, b),
            )

        return self._publish(name, [a, b], compute, out)

    def negative(self, x: Operand, out: Array | Carrier | None = None) -> Array:
        """-x: the sign bit flipped, no flags."""
        return self._sign("negative", x, out)

    def absolute(self, x: Operand, out: Array | Carrier | None = None) -> Array:
        """|x|: the sign bit cleared, no flags."""
        return self._sign("absolute", x, out)

    def _sign(self, name: str, x: Operand, out: Array | Carrier | None) -> Array:
        (a,) = self._operands((x,))

        def compute(target: Carrier | None, marks: NDArray[np.uint8] | None) -> tuple[Carrier, int]:
            return _into(target, compare.with_sign(name, a, self.settings), 0, (a,))

        return self._publish(name, [a], compute, out)

    def maximum(self, x: Operand, y: Operand, out: Array | Carrier | None = None) -> Array:
        """The larger; a NaN wins, -0 < +0 (IEEE 754-2019 §9.6 maximum)."""
        return self._extreme("maximum", x, y, out)

    def minimum(self, x: Operand, y: Operand, out: Array | Carrier | None = None) -> Array:
        """The smaller; a NaN wins, -0 < +0 (IEEE 754-2019 §9.6 minimum)."""
        return self._extreme("minimum", x, y, out)

    def fmax(self, x: Operand, y: Operand, out: Array | Carrier | None = None) -> Array:
        """The larger; the number wins over a NaN (IEEE 754-2019 §9.6 maximumNumber)."""
        return self._extreme("fmax", x, y, out)

    def fmin(self, x: Operand, y: Operand, out: Array | Carrier | None = None) -> Array:
        """The smaller; the number wins over a NaN (IEEE 754-2019 §9.6 minimumNumber)."""
        return self._extreme("fmin", x, y, out)

    def _extreme(self, name: str, x: Operand, y: Operand, out: Array | Carrier | None) -> Array:
        a, b = self._operands((x, y))

        def compute(target: Carrier | None, marks: NDArray[np.uint8] | None) -> tuple[Carrier, int]:
            values, loud = compare.extreme(name, a, b, self.settings)
            return _into(target, values, _fold(loud, marks), (a, b))

        return self._publish(name, [a, b], compute, out)

    def compare(
        self, name: str, x: Operand, y: Operand, signalling: bool | None = None
    ) -> NDArray[np.bool_]:
        """Truth values of equal, not_equal, less, less_equal, greater or greater_equal.

        Flags     INVALID for signalling NaN; if `signalling`, for every NaN. Default: orders
                  signal, equality does not (IEEE 754-2019 §5.11).
        """
        a, b = self._operands((x, y))
        if signalling is None:
            signalling = compare.SIGNALLING[name]
        truth, marks = compare.compare(name, a, b, self.settings, signalling)
        flags = Flags(_fold(marks, None))
        if self.format == BINARY64:
            return truth
        self.flags |= flags
        if flags & self.traps:
            raise self._trap(name, flags, marks, [a, b])
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

    # Conversions ----------------------------------------------------------------------------

    def convert(self, x: ArrayLike | Array, out: Array | Carrier | None = None) -> Array:
        """x in this format: an Array of another, floats, integers or packed storage; one rounding.

        Flags     INVALID for signalling NaN; the rest from the rounding.
        Raises    TypeError for complex, object, string and longdouble input.
        Source    IEEE 754-2019 §5.4.2 convertFormat, convertFromInt.
        """
        carrier = x.values if isinstance(x, Array) else _floats(x)
        return self._convert("convert", carrier, out)

    def _convert(self, name: str, carrier: Carrier, out: Array | Carrier | None) -> Array:
        return self._rounded(name, [carrier], self.settings, out)

    def to_integers(self, x: Operand, dtype: DTypeLike) -> NDArray[Any]:
        """x as int32, int64, uint32 or uint64, rounded to whole numbers by this context's rounding.

        Flags     INVALID alone for NaN, infinity and out of range (the result is then the smallest
                  signed, the largest unsigned number, as on x86); else INEXACT where rounded.

        >>> from fpsim.formats import BINARY16
        >>> half = Context(BINARY16)
        >>> half.to_integers(half.array([2.5, 3.5, -7.0]), "int32")
        array([ 2,  4, -7], dtype=int32)
        """
        kind = integers.integer_type(dtype)
        (a,) = self._operands((x,))
        wide = _with_format(self.settings, integers.whole_format(self.format))
        quiet = Context.__new__(Context)
        quiet.__dict__.update(self.__dict__)
        quiet.traps, quiet.counts = Flags.NONE, None
        number = self.operation
        whole = quiet._rounded("round_to_integral", [a.astype(wide.format.carrier)], wide, None)
        result, marks = integers.to_integers(a, whole.values, kind)
        flags = Flags(_fold(marks, None))
        self.flags |= flags
        if flags & self.traps:
            self.operation = number
            raise self._trap("to_integers", flags, marks, [a])
        return result


def _fold(marks: NDArray[np.uint8], into: NDArray[np.uint8] | None) -> int:
    if into is not None:
        into[...] = marks
    return int(np.bitwise_or.reduce(marks, axis=None)) if marks.size else 0


def _into(
    target: Carrier | None, values: Carrier, flags: int, operands: Sequence[Carrier]
) -> tuple[Carrier, int]:
    if target is None:
        return values, flags
    check_out(target, values.shape, values.dtype, operands)
    target[...] = values
    return target, flags


def _nearest(settings: Settings) -> Settings:
    return settings if settings.rounding is RNE else _with(settings, rounding=RNE)


def _with_format(settings: Settings, fmt: Format) -> Settings:
    if fmt == settings.format:
        return settings
    return _with(settings, format=fmt, overflow=None, infinite_input=None)


def _with(settings: Settings, **changes: Any) -> Settings:
    return Settings(**({name: getattr(settings, name) for name in _CHOICES} | changes))


def _mixed(operands: Sequence[Any], fmt: Format) -> str:
    names = "xyz"
    arrays = [(n, o.format) for n, o in zip(names, operands, strict=False) if isinstance(o, Array)]
    other = next((n, f) for n, f in arrays if f != fmt)
    first = next(((n, f) for n, f in arrays if f == fmt), ("the context", fmt))
    pair = sorted((first, other)) if first[0] in names else [first, other]
    said = " and ".join(f"{n} is {f.name}" for n, f in pair)
    return f"{said}; fpsim never promotes. Convert one: {other[0]}.to({fmt.name.upper()})."


def _scalar(value: Scalar) -> Carrier:
    """A Python number as a binary64 from which every rounding is that of the number."""
    if isinstance(value, float):
        return np.array(value, np.float64)
    return np.array(_to_odd(Fraction(int(value))), np.float64)


def _to_odd(x: Fraction) -> float:
    """binary64 of a rational, rounded to odd; beyond its range, its largest or smallest number."""
    if x == 0:
        return 0.0
    sign = -1.0 if x < 0 else 1.0
    x = abs(x)
    shift = 53 - (x.numerator.bit_length() - x.denominator.bit_length())
    scaled = x * Fraction(2) ** shift
    whole = scaled.numerator // scaled.denominator
    if whole >= 1 << 53:
        shift -= 1
        scaled /= 2
        whole = scaled.numerator // scaled.denominator
    if scaled.denominator != 1:
        whole |= 1
    if 53 - shift > 1023:
        return sign * np.finfo(np.float64).max
    if 53 - shift < -1000:
        return sign * 2.0**-1000
    return sign * float(np.ldexp(float(whole), -shift))


def _floats(values: ArrayLike) -> Carrier:
    """Input of a conversion as binary32 or binary64 that decides every rounding alike."""
    array = np.asarray(values)
    dtype = array.dtype
    if dtype in (np.float32, np.float64):
        return array
    if dtype in _FORMAT_OF_STORAGE:
        return codes.unpack(array, _FORMAT_OF_STORAGE[dtype])
    if dtype.kind in "iub" and dtype.isnative:
        return integers.to_binary64(array.astype(np.int32) if dtype.kind == "b" else array)
    if array.dtype == object and not isinstance(values, np.ndarray) and _all_integers(array):
        return np.vectorize(lambda v: _to_odd(Fraction(int(v))), otypes=[np.float64])(array)
    raise TypeError(
        f"values have dtype {dtype}; give floats (float16/32/64, ml_dtypes) or integers of up to "
        "64 bits; decimal strings go through ctx.decimal"
    )


def _all_integers(array: NDArray[Any]) -> bool:
    return all(isinstance(v, int) for v in array.flat)
