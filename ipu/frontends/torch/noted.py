"""What runs in a session, told by what it asks of the machine and of the account."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from fpsim.elementwise.notes import CallNotes
from fpsim.records.formats import Format
from ipu.frontends.torch.values import Memory
from ipu.machine.cost.ledger import LedgerRow
from ipu.machine.device import Device
from ipu.run.account import Account, AccountedWork
from ipu.run.noted import noted_on

__all__ = ["MachineSession", "NotedWork", "note_work"]

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
    memory = session.memory
    formats, memory.of_passes = memory.of_passes, set()
    before = session.account.work()
    try:
        result, asked = noted_on(session.device, action)
    finally:
        used, memory.of_passes = memory.of_passes, formats | memory.of_passes
    work = session.account.work() - before
    return result, NotedWork(asked.notes, asked.rows, work, asked.cycles, frozenset(used))
