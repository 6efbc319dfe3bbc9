"""What runs in a session, told by what it asks of the machine; and whether that can run again.

Source    docs/semantics.md §2 (numbering).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.notes import Again, CallNotes, NotedCall
from fpsim.records.formats import Format
from ipu.frontends.torch.capture.recording import replacing
from ipu.frontends.torch.values import Memory
from ipu.machine.cost.ledger import LedgerRow
from ipu.machine.device import Device
from ipu.run.account import Account, AccountedWork

__all__ = ["KnownMemory", "MachineSession", "NotedWork", "arguments_noted", "in_order", "note_work"]

_Result = TypeVar("_Result")


class MachineSession(Protocol):
    """What noting asks of a session."""

    device: Device
    memory: Memory
    account: Account


class NotedWork(NamedTuple):
    """What was asked of the machine.

    notes      native calls.
    rows       of the ledger, by tensor.
    work       what the account was told.
    cycles     of the vector unit.
    formats    that were computed in, of a backward pass.
    """

    notes: CallNotes
    rows: list[tuple[str, LedgerRow]]
    work: AccountedWork
    cycles: int
    formats: frozenset[Format]


def note_work(
    session: MachineSession, action: Callable[[], _Result]
) -> tuple[_Result, NotedWork]:
    """What an action gives, and what it asked of the machine."""
    device, memory = session.device, session.memory
    rows: list[tuple[str, LedgerRow]] = []
    formats, memory.of_passes = memory.of_passes, set()
    before, cycles = session.account.work(), device.vector_cycles
    device.notes = notes = CallNotes()
    try:
        with ExitStack() as stack:
            replacing(stack, device.ledger, "add", lambda add: arguments_noted(add, rows))
            result = action()
    finally:
        device.notes = None
        used, memory.of_passes = memory.of_passes, formats | memory.of_passes
    return result, NotedWork(
        notes, rows, session.account.work() - before, device.vector_cycles - cycles,
        frozenset(used),
    )


def arguments_noted(function: Callable[..., Any], rows: list[Any]) -> Callable[..., Any]:
    """A function whose arguments are noted too."""
    def called(*arguments: Any) -> Any:
        rows.append(arguments)
        return function(*arguments)

    return called


def in_order(notes: CallNotes) -> tuple[tuple[tuple[Again, int], ...], list[int]]:
    """Calls, and where the numbers of each begin; all numbers."""
    runs: list[tuple[Again, int]] = []
    numbers: list[int] = []
    for call in notes.calls:
        runs.append((call.again, len(numbers)))
        numbers += call.numbers
    return tuple(runs), numbers


class KnownMemory:
    """Ranges of memory in which calls may read."""

    def __init__(self) -> None:
        #: First address of memory, and the first behind it; all of it is kept alive.
        self._ranges: dict[int, int] = {}

    @property
    def n_bytes(self) -> int:
        """Bytes of all memory that is known."""
        return sum([end - start for start, end in self._ranges.items()])

    def add(self, start: int, end: int) -> None:
        """From an address to the one behind it."""
        self._ranges[start] = max(self._ranges.get(start, 0), end)

    def holds(self, x: NDArray[Any]) -> bool:
        """Whether an array lies in it; one without elements lies nowhere."""
        low, high = _bounds(x)
        return not x.size or any(
            start <= low and high <= end for start, end in self._ranges.items()
        )

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
