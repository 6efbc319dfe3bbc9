"""What a function of tensors asks of the machine, asked again below the handlers.

A function runs as it is written when it first meets a signature. Then its native calls are noted
(`fpsim.elementwise.notes`) on memory that stays; from there on tensors are copied into that memory,
the calls run, and results are copied out of it. Values, flags, random bits and their numbers,
ledger, cycles and account are those of the function. It must decide by shapes, formats and options
alone, and nothing may look at its single operations.

Where a call has no result for numbers of now, the function runs as it is written.

Source    docs/semantics.md §2 (numbering).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch

from fpsim.elementwise.notes import Again, CallNotes
from fpsim.records.formats import Format
from fpsim.records.types import Carrier
from ipu.frontends.torch.aten import Call
from ipu.frontends.torch.noted import MachineSession, note_work
from ipu.frontends.torch.values import Memory
from ipu.machine.cost.ledger import LedgerRow
from ipu.run.account import AccountedWork
from ipu.run.noted import KnownMemory, in_order

__all__ = ["RepeatedFunctions", "Tensors", "repeated_on"]

Tensors = tuple[torch.Tensor, ...]

#: Calls of a signature before its native calls are noted: rules that run in one call then do.
_FIRST_CALLS = 2
#: Calls without a result after which a signature runs as it is written.
_MOST_FALLS = 8
#: Signatures that are kept.
_MOST_KEPT = 64


class _NotedFunction(NamedTuple):
    """The native calls of a function.

    inputs     memory of the tensors that change.
    results    memory of results, and their formats.
    runs       calls, and where the numbers of each begin.
    rows       of the ledger.
    work       what the account is told.
    formats    that are computed in.
    """

    inputs: tuple[Carrier, ...]
    results: tuple[tuple[Carrier, Format], ...]
    runs: tuple[tuple[Again, int], ...]
    n_draws: int
    rows: tuple[LedgerRow, ...]
    cycles: int
    work: AccountedWork
    formats: frozenset[Format]


class _FunctionSignature:
    """What is known of calls alike.

    alive    what the signature knows by its identity or its address.
    """

    def __init__(self, alive: Sequence[Any]) -> None:
        self.n_calls = self.n_falls = 0
        self.noted: _NotedFunction | None = None
        self.alive = alive


class RepeatedFunctions:
    """The functions of a session."""

    def __init__(self) -> None:
        self._signatures: dict[tuple[Any, ...], _FunctionSignature] = {}

    def run(
        self, session: MachineSession, call: Call, function: Callable[..., Tensors],
        changing: Tensors, standing: Sequence[torch.Tensor | None], options: tuple[Any, ...] = (),
    ) -> Tensors:
        """What the function gives for the session, tensors that change, others, and options.

        call        whose layer, direction and policy it runs under.
        changing    tensors that hold the format of the call.
        standing    are read where they lie.
        """
        signature = self._signature(session, call, function, changing, standing, options)
        if signature.noted is not None and signature.n_falls < _MOST_FALLS:
            results = _again(session, call, signature.noted, changing)
            if results is not None:
                return results
            signature.n_falls += 1
        signature.n_calls += 1
        if signature.n_calls != _FIRST_CALLS + 1 or call.policy.in_quarters:
            return function(session, *changing, *standing, *options)
        results, signature.noted = _noting(session, function, changing, standing, options)
        return results

    def _signature(
        self, session: MachineSession, call: Call, function: Callable[..., Tensors],
        changing: Tensors, standing: Sequence[torch.Tensor | None], options: tuple[Any, ...],
    ) -> _FunctionSignature:
        device, format_of = session.device, session.memory.format_of
        rules = (
            call.policy, device.control, device.source, device.options, device.planner,
            device.conv_planner, device.partials, call.activations,
        )
        key: list[Any] = [function, call.layer, call.direction, *options, *map(id, rules)]
        key += [x.shape for x in changing]
        for y in standing:
            if y is not None:
                key += [y.data_ptr(), y.shape, y.stride(), id(format_of(y))]
        signature = self._signatures.get(tuple(key))
        if signature is None:
            if len(self._signatures) >= _MOST_KEPT:
                self._signatures.clear()
            alive = *rules, *standing
            signature = self._signatures[tuple(key)] = _FunctionSignature(alive)
        return signature


def _again(
    session: MachineSession, call: Call, noted: _NotedFunction, changing: Tensors
) -> Tensors | None:
    device = session.device
    for memory, x in zip(noted.inputs, changing, strict=True):
        memory[...] = x.detach().numpy()
    numbers = np.array(device.clock.take(noted.n_draws), np.uint64)
    for again, first in noted.runs:
        if not again(numbers, first):
            device.clock.give_back(noted.n_draws)
            return None
    for row in noted.rows:
        device.ledger.add(device.tensor, row)
    device.vector_cycles += noted.cycles
    session.account.repeat(noted.work)
    if session.memory.in_pass:
        session.memory.of_passes |= noted.formats
    return tuple([_copied_out(session, call, *result) for result in noted.results])


def _copied_out(
    session: MachineSession, call: Call, memory: Carrier, fmt: Format
) -> torch.Tensor:
    result = torch.from_numpy(memory.copy())
    session.memory.mark(result, fmt, call.direction == "backward")
    return result


# The first time -----------------------------------------------------------------------------------


def _noting(
    session: MachineSession, function: Callable[..., Tensors], changing: Tensors,
    standing: Sequence[torch.Tensor | None], options: tuple[Any, ...],
) -> tuple[Tensors, _NotedFunction | None]:
    """What the function gives, and its native calls; None where they are not all of it."""
    memory, clock = session.memory, session.device.clock
    inputs, k = [_twin(memory, x) for x in changing], clock.k
    results, ran = note_work(session, lambda: function(session, *inputs, *standing, *options))
    copies = tuple([_twin(memory, x) for x in results])
    runs, numbers = in_order(ran.notes)
    clock.give_back(clock.k - k)
    drawn = list(clock.take(len(numbers)))
    read = (*inputs, *(x for x in standing if x is not None))
    if not ran.notes.is_whole or drawn != numbers or not _is_closed(ran.notes, read, results):
        return copies, None
    held: list[tuple[Carrier, Format]] = []
    for x in results:
        fmt = memory.format_of(x)
        if fmt is None:
            return copies, None
        held.append((x.numpy(), fmt))
    if not _repeats(runs, numbers, results):
        return copies, None
    return copies, _NotedFunction(
        tuple([x.numpy() for x in inputs]), tuple(held), runs, len(numbers),
        tuple([row for _, row in ran.rows]), ran.cycles, ran.work, ran.formats,
    )


def _twin(memory: Memory, x: torch.Tensor) -> torch.Tensor:
    """A copy that holds the same format."""
    copy, fmt = x.detach().clone(), memory.format_of(x)
    if fmt is not None:
        memory.mark(copy, fmt, memory.is_gradient(x))
    return copy


def _is_closed(notes: CallNotes, tensors: Sequence[torch.Tensor], results: Tensors) -> bool:
    """Whether calls read tensors, what calls before them wrote, and constants; and make results."""
    readable = KnownMemory()
    for x in tensors:
        readable.add(*np.lib.array_utils.byte_bounds(x.detach().numpy()))
    written = notes.starts()
    return all(readable.takes(call, notes.is_constant) for call in notes.calls) and all(
        x.data_ptr() in written for x in results)


def _repeats(
    runs: Sequence[tuple[Again, int]], numbers: Sequence[int], results: Tensors
) -> bool:
    """Whether the calls give the same results once more."""
    before, drawn = [x.numpy().tobytes() for x in results], np.array(numbers, np.uint64)
    if not all(again(drawn, first) for again, first in runs):
        return False
    return before == [x.numpy().tobytes() for x in results]


_OF_SESSIONS: WeakKeyDictionary[Any, RepeatedFunctions] = WeakKeyDictionary()


def repeated_on(session: MachineSession) -> RepeatedFunctions:
    """Those of a session, which outlive its openings."""
    functions = _OF_SESSIONS.get(session)
    if functions is None:
        functions = _OF_SESSIONS[session] = RepeatedFunctions()
    return functions
