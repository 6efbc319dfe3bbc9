"""What an action asks of a device, noted so that it can run again on the same memory.

Source    docs/semantics.md §2 (numbering).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.notes import Again, CallNotes, NotedCall
from ipu.machine.cost.ledger import LedgerRow
from ipu.machine.device import Device

__all__ = ["DeviceWork", "KnownMemory", "arguments_noted", "in_order", "noted_on", "replacing"]

_Result = TypeVar("_Result")


class DeviceWork(NamedTuple):
    """What was asked of a device.

    notes      native calls.
    rows       of the ledger, by tensor.
    cycles     of the vector unit.
    """

    notes: CallNotes
    rows: list[tuple[str, LedgerRow]]
    cycles: int


def noted_on(device: Device, action: Callable[[], _Result]) -> tuple[_Result, DeviceWork]:
    """What an action gives, and what it asked of the device."""
    rows: list[tuple[str, LedgerRow]] = []
    cycles = device.vector_cycles
    device.notes = notes = CallNotes()
    try:
        with ExitStack() as stack:
            replacing(stack, device.ledger, "add", lambda add: arguments_noted(add, rows))
            result = action()
    finally:
        device.notes = None
    return result, DeviceWork(notes, rows, device.vector_cycles - cycles)


def arguments_noted(function: Callable[..., Any], rows: list[Any]) -> Callable[..., Any]:
    """A function whose arguments are noted too."""
    def called(*arguments: Any) -> Any:
        rows.append(arguments)
        return function(*arguments)

    return called


def replacing(stack: ExitStack, owner: Any, name: str, change: Callable[[Any], Any]) -> None:
    """Another attribute in place of one until the stack is left."""
    has_own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, change(before))
    stack.callback(*((setattr, owner, name, before) if has_own else (delattr, owner, name)))


def in_order(notes: CallNotes) -> tuple[tuple[tuple[Again, int], ...], list[int]]:
    """Calls, and where the numbers of each begin; all numbers."""
    runs: list[tuple[Again, int]] = []
    numbers: list[int] = []
    for call in notes.calls:
        runs.append((call.again, len(numbers)))
        numbers += call.numbers
    return tuple(runs), numbers


class KnownMemory:
    """Ranges of memory in which calls may read.

    >>> memory, numbers = KnownMemory(), np.zeros(4)
    >>> memory.add(*np.lib.array_utils.byte_bounds(numbers))
    >>> memory.holds(numbers[1:]), memory.holds(np.zeros(4)), memory.n_bytes
    (True, False, 32)
    """

    def __init__(self) -> None:
        #: First addresses of memory, and those behind it, in order; what overlaps is one range.
        self._starts: list[int] = []
        self._ends: list[int] = []

    @property
    def n_bytes(self) -> int:
        """Bytes of all memory that is known."""
        return sum(self._ends) - sum(self._starts)

    def add(self, start: int, end: int) -> None:
        """From an address to the one behind it."""
        if start == end:
            return
        first, last = bisect_right(self._ends, start), bisect_right(self._starts, end - 1)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    def holds(self, x: NDArray[Any]) -> bool:
        """Whether an array lies in it; one without elements lies nowhere."""
        low, high = _bounds(x)
        i = bisect_right(self._starts, low) - 1
        return not x.size or (i >= 0 and high <= self._ends[i])

    def takes(self, call: NotedCall, is_constant: Callable[[NDArray[Any]], bool]) -> bool:
        """Whether all that a call reads is known, or constant; then its results are known too."""
        fixed = {id(x) for x in call.fixed}
        is_known = all(
            is_constant(x) or (id(x) not in fixed and self.holds(x)) for x in call.operands
        )
        for x in call.results if is_known else ():
            self.add(*_bounds(x))
        return is_known


def _bounds(x: NDArray[Any]) -> tuple[int, int]:
    low, high = np.lib.array_utils.byte_bounds(x)
    return low, high
