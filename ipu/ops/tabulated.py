"""Functions of 16-bit values that round in binary32 alone: each value computed once, then read.

Results in binary32 are never rounded stochastically, so such a function has one value and one set
of flags for each of the 65 536 codes, as long as the control register stays.

Source    `ipu.machine.control` (which formats round stochastically).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.code_tables import CodeTable, all_values, tabulate
from fpsim.elementwise.recording import TABLE
from fpsim.records.flags import Flags, raised_in
from fpsim.records.formats import BINARY32, Format
from fpsim.records.types import Carrier, ElementFlags
from fpsim.state.counts import Counts
from ipu.machine.control import FpCtl
from ipu.machine.device import Device
from ipu.machine.reference import wide
from ipu.machine.target import Target

__all__ = ["Function", "tabulated"]

#: Steps on a device, element by element, from an array in binary32 to one.
Function = Callable[[Device, Array], Array]

#: Elements from which on a table is computed, which takes as long as a call of some 40 000.
_LEAST = 1 << 13
_CODES = 1 << 16
#: Classes of codes that a byte tells.
_MOST_CLASSES = 256
_ALL_FLAGS = sum(int(f) for f in Flags)
#: Bits behind those of flags.
_ZERO, _SUBNORMAL = _ALL_FLAGS + 1, 2 * (_ALL_FLAGS + 1)


def tabulated(device: Device, x: Array, function: Function) -> Array:
    """function(device, x) in binary32, of binary64 in that; many elements of 16 bits from a table.

    function    of its own module, since tables are kept by it; its steps round in binary32.

    Flags     those of the steps.

    >>> from fpsim import BINARY16
    >>> device = Device()
    >>> def half_square(device: Device, x: Array) -> Array:
    ...     return device.multiply(device.multiply(x, x), 0.5)
    >>> x = device.from_host(np.arange(10000.0) / 4, BINARY16)
    >>> tabulated(device, x, half_square).values[:3].tolist()
    [0.0, 0.03125, 0.125]
    """
    context = device.context(BINARY32)
    is_listed = x.format.bits == 16 and x.format in device.target.formats
    table, options = None, device.options
    if is_listed and x.size >= _LEAST and not context.core.armed:
        table = _table(function, x.format, device.target, device.control, options.f32_denormals,
                       options.max_nan)
    counted = None if table is None else table.counted
    if table is None or (device.counts is not None and counted is None):
        return function(device, device.cast(x, wide(x.format)))
    values, whole = np.empty(x.shape, np.float32), np.ascontiguousarray(x.carrier)
    if device.counts is None or counted is None:
        flags = table.codes.read(whole, values)
    else:
        flags = counted.read(whole, values, device.counts)
    if flags:
        context.core.raise_flags(flags)
    device.vector_cycles += table.cycles * -(-x.size // 2)
    if device.notes is not None:
        device.notes.refuse()
    if device.recording is not None:
        device.recording.note(
            "table", context.core.settings, [x.carrier], values, flags, TABLE, table=table.codes
        )
        if device.counts is not None:
            device.recording.refuse()  # several operations count
    return Array(values, context)


class _StepOfCodes(NamedTuple):
    """An operation of a function: its name, and for every code what its result counts, in bits.

    bits    of `Flags`, then whether it is zero, then whether it is subnormal.
    """

    name: str
    is_number: bool
    bits: NDArray[np.uint8]


class _CountsByCode(Counts):
    """What each operation counts for every code, instead of counters."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[_StepOfCodes] = []

    def add(
        self, operation: str, values: NDArray[Any] | None, marks: ElementFlags, fmt: Format
    ) -> None:
        bits = marks.copy()
        if values is not None:
            is_small = np.abs(values) < fmt.smallest_normal
            bits[values == 0] |= _ZERO
            bits[is_small & (values != 0)] |= _SUBNORMAL
        self.steps.append(_StepOfCodes(operation, values is not None, bits))


class _CountedTable(NamedTuple):
    """Values by code, whose marks tell classes of codes that count alike.

    numbers    what an element of each class counts in each step: zeros, subnormals, flags.
    """

    codes: CodeTable
    steps: tuple[_StepOfCodes, ...]
    numbers: NDArray[np.int64]

    def read(self, x: Carrier, out: Carrier, counts: Counts) -> int:
        """out = the value of each element of x; its steps count. The flags of all, joined."""
        classes = np.empty(x.shape, np.uint8)
        self.codes.read(x, out, classes)
        times = np.bincount(classes.reshape(-1), minlength=len(self.numbers))
        joined = 0
        for step, numbers in zip(
            self.steps, np.tensordot(times, self.numbers, 1).tolist(), strict=True
        ):
            zeros, subnormals, *flags = numbers
            small = (zeros, subnormals) if step.is_number else None
            counts.add_numbers(step.name, x.size, small, flags)
            joined |= raised_in(flags)
        return joined


class _Table:
    """A function of every code: values in binary32, and all flags of the steps.

    cycles    thread cycles of two elements.
    """

    def __init__(
        self, fmt: Format, values: Carrier, steps: list[_StepOfCodes], cycles: int
    ) -> None:
        self._format, self._values, self._steps, self.cycles = fmt, values, steps, cycles
        flags = np.bitwise_or.reduce([step.bits for step in steps]) & np.uint8(_ALL_FLAGS)
        self.codes = tabulate(fmt, values, flags)

    @cached_property
    def counted(self) -> _CountedTable | None:
        """The same with what the steps count; None where codes fall into too many classes."""
        bits = np.stack([step.bits for step in self._steps], 1)
        patterns, classes = np.unique(bits, axis=0, return_inverse=True)
        if len(patterns) > _MOST_CLASSES:
            return None
        places = [_ZERO, _SUBNORMAL, *(int(f) for f in sorted(Flags))]
        numbers = np.stack([(patterns & np.uint8(place)) != 0 for place in places], 2)
        codes = tabulate(self._format, self._values, classes.reshape(-1).astype(np.uint8))
        return _CountedTable(codes, tuple(self._steps), numbers.astype(np.int64))


@lru_cache(maxsize=32)
def _table(
    function: Function, fmt: Format, target: Target, control: FpCtl, f32_denormals: str,
    max_nan: str,
) -> _Table:
    """The function of every value of the format, computed on a device of the same choices."""
    device = Device(target, control, f32_denormals=f32_denormals, max_nan=max_nan)
    counts = device.counts = _CountsByCode()
    x = Array(all_values(fmt), device.context(fmt))
    values = function(device, device.cast(x, BINARY32)).carrier
    return _Table(fmt, values, counts.steps, device.vector_cycles // (_CODES // 2))
