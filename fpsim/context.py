"""Context: everything that an operation depends on, and what operations left behind.

A `Context` joins `Settings` (format, rounding, policies) with state: sticky flags, armed traps,
counts, and the source of random bits. As in `decimal`, there is no hidden global mode.

Source    IEEE 754-2019 §4 and §7; docs/semantics.md §2 and §3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fpsim.array import Array
from fpsim.elementwise import codes
from fpsim.elementwise.inputs import Scalar, decimal
from fpsim.elementwise.progressions import progression
from fpsim.elementwise.sizes import checked_number, checked_shape
from fpsim.extrema import Extrema
from fpsim.operations import Operations
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY64, Format, find_format
from fpsim.records.rounding import RNE, Rounding, find_rounding
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier
from fpsim.reductions import Reductions
from fpsim.state.bits import BitSource, Philox
from fpsim.state.counts import Counts
from fpsim.state.processor import usual_arithmetic_in

__all__ = ["Context"]


@usual_arithmetic_in()
class Context(Operations, Reductions, Extrema):
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
        settings = Settings(
            format, find_rounding(rounding), overflow, subnormals, tininess, nan, infinite_input,
            divide_by_zero, quiet_nan_raises,
        )  # fmt: skip
        super().__init__(settings, Philox(seed) if bits is None else bits, traps, count=count)

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
        if not isinstance(fmt, Format):
            fmt = find_format(fmt)
        if fmt == self.format:
            return self
        if fmt == BINARY64:
            return Context(BINARY64)
        settings, count = self.settings.with_format(fmt), self.counts is not None
        other = Context.__new__(Context)
        Operations.__init__(other, settings, self.source, self.traps, count=count)
        other.share(self)
        return other

    def spawn(self, k: int) -> Context:
        """The k-th child: the same choices, independent random bits."""
        return self.replace(bits=self.source.spawn(k))

    def apart(self) -> Context:
        """These settings and random bits from the next operation on, with flags and counts of its
        own and no traps: for another thread.

        >>> from fpsim.records.formats import BINARY16
        >>> half = Context(BINARY16)
        >>> other = half.apart(); _ = other.array([0.1]); other.flags, half.flags
        (<Flags.INEXACT: 1>, <Flags.NONE: 0>)
        """
        other = Context.__new__(Context)
        super(Context, other).__init__(self.settings, self.source, Flags.NONE, count=False)
        other.clock.operation, other.clock.first = self.clock.operation, self.clock.first
        return other

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
        texts = [text] if isinstance(text, str) else text
        if not isinstance(texts, (list, tuple, np.ndarray)):
            raise TypeError(
                f"text={text!r} is no string; give digits as in '0.1', or numbers to ctx.array"
            )
        shape = () if isinstance(text, str) else (len(texts),)
        exact = [decimal(t, self.settings.native) for t in texts]
        return self.convert(np.array(exact, np.float64).reshape(shape))

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
        (carrier,) = self.carriers((value,))
        extents = checked_shape(shape, self.format.carrier.itemsize)
        return Array(np.full(extents, carrier, self.format.carrier), self)

    def arange(self, start: Scalar, stop: Scalar | None = None, step: Scalar = 1) -> Array:
        """start, start + step, ... before stop; with one argument from 0 to it.

        Rounding  each exact start + k*step once, by this context's rounding, as `array`.
        Flags     of these roundings.

        >>> from fpsim.records.formats import BINARY16
        >>> Context(BINARY16).arange(0, 0.3, 0.1)
        Array([0.        , 0.09997559, 0.19995117], binary16)
        """
        checked_number("step", step)
        first, end = (0, start) if stop is None else (start, stop)
        return self.convert(progression(first, end, step=step, native=self.settings.native))

    def linspace(
        self, start: Scalar, stop: Scalar, num: int = 50, *, endpoint: bool = True
    ) -> Array:
        """num numbers from start to stop in equal steps; stop is one of them if `endpoint`.

        Rounding  each exact number once, by this context's rounding, as `array`.
        """
        numbers = progression(start, stop, num=num, endpoint=endpoint, native=self.settings.native)
        return self.convert(numbers)

    def unpack(self, packed: ArrayLike) -> Array:
        """The values of packed storage, exactly: what `Array.to_numpy` or `np.save` stored.

        Raises    TypeError for the storage of another format.

        >>> from fpsim.records.formats import BFLOAT16
        >>> x = Context(BFLOAT16).array([0.1])
        >>> Context(BFLOAT16).unpack(x.to_numpy())
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

    def __reduce__(self) -> tuple[Any, ...]:
        choices = self.settings.choices() | {"traps": self.traps, "count": self.counts is not None}
        state = self.source, self.flags, self.operation, self.counts
        return _restore, (choices, *state)


def _restore(
    choices: dict[str, Any], source: BitSource, flags: Flags, operation: int, counts: Counts | None
) -> Context:
    """A context as it was when it was pickled; a device's comes back as a plain one."""
    context = Context(**choices, bits=source)
    context.flags, context.operation, context.counts = flags, operation, counts
    return context
