"""Context: everything that an operation depends on, and what operations left behind.

A `Context` joins `Settings` (format, rounding, policies) with state: sticky flags, armed traps,
counts, and the source of random bits. As in `decimal`, there is no hidden global mode.

Source    IEEE 754-2019 §4 and §7; docs/semantics.md §2 and §3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.array import Array
from fpsim.elementwise import codes
from fpsim.elementwise.apply import Carrier, apply, check_out, common_shape, fold
from fpsim.elementwise.inputs import Scalar, decimal, scalar
from fpsim.operations import Compute, Operand, Operations, Out
from fpsim.records.flags import Flags, FloatingPointTrap, as_integer
from fpsim.records.formats import BINARY64, Format
from fpsim.records.rounding import RNE, Rounding, find_rounding
from fpsim.records.settings import Settings
from fpsim.reductions import Reductions
from fpsim.state.bits import BitSource, Philox
from fpsim.state.counts import Counts

__all__ = ["Clock", "Context"]


class Clock:
    """Number of the next stochastic operation; the contexts of one machine share a clock."""

    __slots__ = ("operation",)

    def __init__(self) -> None:
        self.operation = 0


class _Status:
    """Flags that are up; a context and those `in_format` makes from it share them."""

    __slots__ = ("flags",)

    def __init__(self) -> None:
        self.flags = 0


class Context(Operations, Reductions):
    """Arithmetic in one format: rounding, policies, flags, traps and random bits.

    format, rounding, overflow, subnormals, tininess, nan, infinite_input, divide_by_zero,
    quiet_nan_raises    as in `Settings`.
    traps     flags that stop an operation with `FloatingPointTrap`; nothing is published then.
    seed      key of the Philox random bits, 0 to 2**64 - 1; `bits` gives another source instead.
    count     count flags, zeros and subnormals of each operation in `counts`.

    A context is for one thread; `spawn(k)` makes independent children.

    >>> from fpsim.records.formats import BINARY16
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
            format, find_rounding(rounding), overflow, subnormals, tininess, nan, infinite_input,
            divide_by_zero, quiet_nan_raises,
        )  # fmt: skip
        if self.settings.native and (traps or count):
            raise ValueError(
                "format=binary64 computes natively and raises no flags; leave traps and count off"
            )
        self.source: BitSource = Philox(seed) if bits is None else bits
        # Plain integers inside: an operation on sixteen elements takes less time than one on enums.
        self._traps, self._status = as_integer("traps", traps), _Status()
        self.counts: Counts | None = Counts() if count else None
        self.clock = Clock()
        self._constants: dict[tuple[type, Scalar | str], Array] = {}

    # What it is -----------------------------------------------------------------------------

    @property
    def format(self) -> Format:
        return self.settings.format

    @property
    def rounding(self) -> Rounding:
        return self.settings.rounding

    @property
    def flags(self) -> Flags:
        """Flags raised since they were last lowered; assign to set or lower them."""
        return Flags(self._status.flags)

    @flags.setter
    def flags(self, flags: Flags) -> None:
        self._status.flags = as_integer("flags", flags)

    def clear_flags(self) -> None:
        """Lower every flag."""
        self._status.flags = 0

    @property
    def traps(self) -> Flags:
        """Flags that stop an operation; assign to arm or disarm them."""
        return Flags(self._traps)

    @traps.setter
    def traps(self, traps: Flags) -> None:
        self._traps = as_integer("traps", traps)

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
        usual = Settings(self.format).choices()
        shown = [f"{k}={v!r}" for k, v in self.settings.choices().items() if v != usual[k]]
        return f"Context({', '.join([self.format.name, *shown])})"

    def replace(self, **changes: Any) -> Context:
        """A fresh context with some choices changed: no flags, operation 0, the same source.

        >>> from fpsim.records.formats import BINARY16
        >>> Context(BINARY16).replace(rounding="RTZ")
        Context(binary16, rounding=RTZ)
        """
        choices = self.settings.choices() | {"traps": self.traps, "count": self.counts is not None}
        if "seed" not in changes:
            choices["bits"] = self.source
        unknown = sorted(set(changes) - {*choices, "seed", "bits"})
        if unknown:
            raise TypeError(
                f"{unknown[0]!r} is not a choice of a Context; "
                f"use one of {', '.join([*choices, 'seed'])}"
            )
        return Context(**(choices | changes))

    def in_format(self, fmt: Format) -> Context:
        """This context in another format: flags, counts and random bits are one and the same.

        binary64, the native reference, has none of them; every other value is exact there.

        >>> from fpsim.records.formats import BFLOAT16, BINARY16
        >>> half = Context(BINARY16, rounding="SR")
        >>> x = half.in_format(BFLOAT16).array([0.1]); half.flags, half.operation
        (<Flags.INEXACT: 1>, 1)
        """
        if fmt == self.format:
            return self
        if fmt == BINARY64:
            return Context(BINARY64)
        other = self.replace(format=fmt)
        other._status, other.counts, other.clock = self._status, self.counts, self.clock
        return other

    def spawn(self, k: int) -> Context:
        """The k-th child: the same choices, independent random bits."""
        return self.replace(bits=self.source.spawn(k))

    # Values ---------------------------------------------------------------------------------

    def array(self, values: ArrayLike | Array) -> Array:
        """Values of the format: each rounded once, by this context's rounding, raising flags.

        Shapes    as given.
        Raises    TypeError for complex, object, string and longdouble input.
        """
        return self.convert(values)

    def decimal(self, text: str | Sequence[str]) -> Array:
        """Values from decimal (or fraction) strings, each with exactly one rounding.

        >>> from fpsim.records.formats import BINARY16
        >>> Context(BINARY16).decimal("0.1").values
        array(0.09997559, dtype=float32)
        """
        shape = () if isinstance(text, str) else (len(text),)
        texts = [text] if isinstance(text, str) else text
        exact = [decimal(t, self.settings.native) for t in texts]
        return self.convert(np.array(exact, np.float64).reshape(shape))

    def zeros(self, shape: int | tuple[int, ...]) -> Array:
        """+0 in every element."""
        return Array(np.zeros(shape, self.format.carrier), self)

    def wrap(self, values: Carrier) -> Array:
        """An Array around carrier values that the format holds already (checked, not copied)."""
        array = np.asarray(values)
        if array.dtype != self.format.carrier:
            raise TypeError(
                f"values have dtype {array.dtype}; "
                f"{self.format.name} is carried in {self.format.carrier}"
            )
        if not codes.is_held(array, self.format).all():
            raise ValueError(f"values are not all in {self.format.name}; round them with ctx.array")
        return Array(array, self)

    def constant(self, value: Scalar) -> Array:
        """A Python number in this format, to nearest even: no flags, no random bits."""
        # 0.0 and -0.0 are equal, their texts are not; a NaN is not even equal to itself.
        key = (type(value), value if value and value == value else repr(value))
        made = self._constants.get(key)
        if made is None:
            settings = self.settings.replace(rounding=RNE)
            carrier, _ = apply("convert", (scalar(value, settings.native),), settings, track=False)
            made = Array(carrier, self)
            if len(self._constants) < 256:
                self._constants[key] = made
        return made

    # What operations need (see Operations) ---------------------------------------------------

    def carriers(self, operands: Sequence[Operand]) -> list[Carrier]:
        found = []
        fmt = self.settings.format
        for value in operands:
            if isinstance(value, Array):
                other = value.context.settings.format
                if other is not fmt and other != fmt:
                    raise TypeError(_mixed(operands, fmt))
                found.append(value.values)
            elif isinstance(value, (bool, int, float)):
                found.append(self.constant(value).values)
            else:
                raise TypeError(
                    f"{type(value).__name__} is not an Array of {fmt.name}; "
                    "convert with ctx.array(y)"
                )
        return found

    def draw(self, shape: tuple[int, ...], settings: Settings) -> dict[str, Any]:
        if not settings.rounding.stochastic:
            return {}
        number = self.clock.operation
        if isinstance(self.source, Philox):
            return {"seed": self.source.seed, "number": number}
        return {"random": self.source.draw(number, shape, settings.random_most)}

    def advance(self, settings: Settings) -> None:
        if settings.rounding.stochastic:
            self.source.advance()
            self.clock.operation += 1

    def rounded(
        self,
        name: str,
        carriers: list[Carrier],
        out: Out = None,
        *,
        wide: Carrier | None = None,
        found: NDArray[np.uint8] | None = None,
    ) -> Array:
        settings = self.settings
        kernel, given = (name, carriers) if wide is None else ("convert", [wide])
        bits = {}
        if settings.rounding.stochastic:
            bits = self.draw(common_shape(given), settings)

        def compute(target: Carrier | None, marks: NDArray[np.uint8] | None) -> tuple[Carrier, int]:
            values, flags = apply(kernel, given, settings, out=target, element_flags=marks, **bits)
            if found is not None:
                flags |= fold(found if marks is None else marks | found, marks)
            return values, flags

        result = self.publish(name, carriers, compute, out)
        self.advance(settings)
        return result

    def publish(
        self, name: str, operands: list[Carrier], compute: Compute, out: Out = None
    ) -> Array:
        target: Carrier | None = None if isinstance(out, Array) else out
        if isinstance(out, Array):
            if out.format != self.format:
                raise TypeError(
                    f"out is {out.format.name}, this context computes {self.format.name}"
                )
            target = out.values
        if self._traps or self.counts is not None:
            values, flags = self._watched(name, operands, compute, target)
        else:
            values, flags = compute(target, None)
        self._status.flags |= flags
        return out if isinstance(out, Array) else Array(values, self)

    def raise_flags(
        self,
        name: str,
        marks: NDArray[np.uint8],
        operands: list[Carrier],
        values: Carrier | None = None,
    ) -> None:
        if self.settings.native:
            return
        flags = fold(marks)
        self._status.flags |= flags
        if flags & self._traps:
            raise self._trap(name, flags, marks, operands)
        if self.counts is not None:
            self.counts.add(name, values, marks, self.format)

    def _watched(
        self, name: str, operands: list[Carrier], compute: Compute, target: Any
    ) -> tuple[Carrier, int]:
        """With traps or counts: every element's flags, scratch memory, then publication."""
        shape = np.broadcast_shapes(*(o.shape for o in operands))
        if target is not None:
            check_out(target, shape, self.format.carrier, operands)
        marks = np.zeros(shape, np.uint8)
        values, _ = compute(None, marks)
        self.raise_flags(name, marks, operands, values)
        if target is not None:
            target[...] = values
            values = target
        return values, fold(marks)

    def _trap(
        self, name: str, flags: int, marks: NDArray[np.uint8], operands: list[Carrier]
    ) -> FloatingPointTrap:
        guilty = (marks & self._traps) != 0
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(guilty)), marks.shape))
        values = [float(np.broadcast_to(o, marks.shape)[index]) for o in operands]
        return FloatingPointTrap(name, Flags(flags), index, values, self.dump())

    def dump(self) -> str:
        """The state that a trap shows."""
        return f"flags {'|'.join(self.flags.names)}; traps {'|'.join(self.traps.names)}"


def _mixed(operands: Sequence[Any], fmt: Format) -> str:
    names = "xyz"
    arrays = [(n, o.format) for n, o in zip(names, operands, strict=False) if isinstance(o, Array)]
    other = next((n, f) for n, f in arrays if f != fmt)
    first = next(((n, f) for n, f in arrays if f == fmt), ("the context", fmt))
    pair = sorted((first, other)) if first[0] in names else [first, other]
    said = " and ".join(f"{n} is {f.name}" for n, f in pair)
    return f"{said}; fpsim never promotes. Convert one: {other[0]}.to({fmt.name.upper()})."
