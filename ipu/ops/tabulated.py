"""Functions of 16-bit values that round in binary32 alone: each value computed once, then read.

Results in binary32 are never rounded stochastically, so such a function has one value and one set
of flags for each of the 65 536 codes, as long as the control register stays.

Source    `ipu.machine.control` (which formats round stochastically).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.code_tables import CodeTable, all_values, tabulate
from fpsim.elementwise.recording import TABLE
from fpsim.records.formats import BINARY32, Format
from fpsim.records.types import ElementFlags
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
    if not is_listed or x.size < _LEAST or context.core.watched:
        return function(device, device.cast(x, wide(x.format)))
    options = device.options
    table = _table(
        function, x.format, device.target, device.control, options.f32_denormals, options.max_nan
    )
    values = np.empty(x.shape, np.float32)
    flags = table.codes.read(np.ascontiguousarray(x.carrier), values)
    if flags:
        context.core.raise_flags(flags)
    device.vector_cycles += table.cycles * -(-x.size // 2)
    if device.recording is not None:
        device.recording.note(
            "table", context.core.settings, [x.carrier], values, flags, TABLE, table=table.codes
        )
    return Array(values, context)


class _Table(NamedTuple):
    """By code: values in binary32, and all flags of the steps; thread cycles of two elements."""

    codes: CodeTable
    cycles: int


class _Flags(Counts):
    """All flags of each element, instead of counters."""

    def __init__(self) -> None:
        super().__init__()
        self.flags: ElementFlags = np.zeros(_CODES, np.uint8)

    def add(
        self, operation: str, values: NDArray[Any] | None, marks: ElementFlags, fmt: Format
    ) -> None:
        self.flags |= marks


@lru_cache(maxsize=32)
def _table(
    function: Function, fmt: Format, target: Target, control: FpCtl, f32_denormals: str,
    max_nan: str,
) -> _Table:
    """The function of every value of the format, computed on a device of the same choices."""
    device = Device(target, control, f32_denormals=f32_denormals, max_nan=max_nan)
    flags = device.counts = _Flags()
    x = Array(all_values(fmt), device.context(fmt))
    values = function(device, device.cast(x, BINARY32)).carrier
    codes_and_flags = tabulate(fmt, values, flags.flags)
    return _Table(codes_and_flags, device.vector_cycles // (_CODES // 2))
