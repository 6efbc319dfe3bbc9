"""A tape below the handlers: the native calls of a step, on memory that stays from step to step.

All tensors that a step makes are kept. An entry whose handler made nothing but calls that are noted
(`noting`) runs as these calls, into the same tensors; a view of them needs none. Other entries run
by their handlers, and what they give is copied into the tensors of before. What leaves the step is
a copy. Values, flags, random bits, ledger, cycles and account are those of the handlers.

Where a call has no result for numbers of now, its entry and all behind it run by their handlers in
that step.

Source    docs/semantics.md §2 (named addresses).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fpsim.elementwise.notes import Again
from ipu.frontends.torch.capture.noting import (
    EntryNoting,
    NativeEntry,
    NotedSession,
    filling,
    is_constant_gradient,
)
from ipu.frontends.torch.capture.recording import storage_of
from ipu.frontends.torch.capture.tape import (
    EventEntry,
    OperationEntry,
    Slot,
    StepTape,
    UpdateEntry,
    slots_of,
)
from ipu.frontends.torch.values import FORMAT_MARK
from ipu.learn.policy import LayerPolicies, Policy
from ipu.run.account import NO_WORK
from ipu.run.places import PlaceClock, numbers_of

__all__ = ["NativeTape", "NativeTapeSession"]

#: Bytes that the tensors of a step may keep.
_MOST_BYTES = 1 << 28
#: Steps in which calls had no result, after which the handlers run.
_MOST_FALLS = 3


class NativeTapeSession(NotedSession, Protocol):
    """What a tape below the handlers asks of a session."""

    clock: PlaceClock
    policy: Policy | LayerPolicies

    def has_recipe(self, layer: str, direction: str) -> bool: ...


class ReplayedEntries(Protocol):
    """What a replay by handlers offers.

    values      by number.
    position    places of operations that were asked for.
    actions     of the entries.
    ends        of each, numbers of the values that nothing reads afterwards.
    """

    values: list[Any]
    position: int

    @property
    def actions(self) -> Sequence[Callable[[], None]]: ...
    @property
    def ends(self) -> Sequence[tuple[int, ...]]: ...
    def number(self, slot: Slot) -> int: ...
    def noted_update(self, entry: UpdateEntry) -> Callable[[], bool] | None: ...


class _Step(NamedTuple):
    """An entry as it runs.

    native      None: its handler runs.
    runs        calls of it, and where their numbers begin.
    action      its handler, or what the session is told.
    begun       places of operations that were asked for before it.
    results     numbers of the values that it makes.
    update      of an update that is repeated: False where it has to run as it is written.
    """

    native: NativeEntry | None
    runs: tuple[tuple[Again, int], ...]
    action: Callable[[], None]
    begun: int
    results: tuple[int, ...]
    update: Callable[[], bool] | None = None


class NativeTape:
    """The native calls of one tape on one session.

    refusal    why it cannot run again; "" where nothing is against it.
    """

    def __init__(
        self, session: NativeTapeSession, tape: StepTape, entries: ReplayedEntries,
        arguments: Sequence[torch.Tensor],
    ) -> None:
        self._session, self._tape, self._entries = session, tape, entries
        self._arguments = [_twin_of(x) for x in arguments]
        self._constants = [i for i, x in enumerate(tape.outside) if x.is_constant]
        self._addresses = self._addresses_now()
        #: Not looked into: another object is another policy, or other random bits.
        self._rules = session.policy, session.device.source
        self._steps: list[_Step] = []
        self._places: list[tuple[str, int]] = []
        self._values: list[Any] = []
        self._n_falls = self._n_native = 0
        self.refusal = ""
        #: Of what leaves the step; see `leaving`.
        self._is_plain: list[bool] | None = None

    @staticmethod
    def obstacle(
        session: NativeTapeSession, tape: StepTape, arguments: Sequence[torch.Tensor]
    ) -> str:
        """Why a step has no tape below its handlers; "" for nothing."""
        if not _is_unwatched(session):
            return "operations are counted or looked at one by one"
        if any(slot.kind == "gradient" for entry in tape.entries for slot in slots_of(entry)):
            return "the step adds to gradients of before"
        storages = [storage_of(x) for x in arguments]
        if len(set(storages)) < len(storages):
            return "arguments share memory"
        if any(isinstance(x, OperationEntry) and "as_strided" in str(x.overload)
               for x in tape.entries):
            return "the step places views itself (as_strided)"
        if any(session.has_recipe(call.where.layer, call.where.direction) for call in tape.calls):
            return "products are computed in blocks"
        return ""

    def _addresses_now(self) -> list[int]:
        return [x.tensor.data_ptr() for x in self._tape.outside]

    def fits(self) -> bool:
        """Whether the tape holds now: the same rules, tensors from outside lie where they lay."""
        policy, source = self._rules
        session = self._session
        if session.policy is not policy or session.device.source is not source:
            return False
        return _is_unwatched(self._session) and self._addresses == self._addresses_now()

    @property
    def n_native(self) -> int:
        """Operations that ran below their handlers in the last step, views included."""
        return self._n_native

    # The first time -------------------------------------------------------------------------

    def note(self, arguments: Sequence[torch.Tensor]) -> None:
        """Run the step by its handlers, and note what they call."""
        entries, noting = self._entries, EntryNoting(self._session)
        self._begin(arguments)
        versions = [x._version for x in self._arguments]
        for x in entries.values:
            if isinstance(x, torch.Tensor):
                noting.know(x)
        end = _end_of(self._tape)
        facts: list[list[dict[str, Any]]] = []
        for i, entry in enumerate(self._tape.entries):
            if noting.n_bytes > _MOST_BYTES:
                self._go_on_without(i)
                self._wrote_arguments(arguments, versions)
                return
            action, begun = entries.actions[i], entries.position
            native, slots = None, [] if isinstance(entry, UpdateEntry) else slots_of(entry.result)
            update = None
            if isinstance(entry, UpdateEntry):
                update = entries.noted_update(entry)
            elif isinstance(entry, OperationEntry) and i < end:
                native = noting.run(
                    entry, action, lambda: entries.position, self._tape.calls, self._value
                )
            else:
                action()
                if is_constant_gradient(entry, self._value):
                    native = filling(self._value(entry.result))
            for slot in slots:
                noting.know(self._value(slot))
            self._add(native, action, begun, tuple(map(entries.number, slots)), update)
            facts.append([_facts_of(self._value(slot)) for slot in slots])
        self._values = list(entries.values)
        self._refuse_if(self._wrote_arguments(arguments, versions), "the step writes an argument")
        self._refuse_if(not self._keep_handlers(facts), "formats of tensors change in the step")
        natives = [step.native for step in self._steps if step.native is not None]
        self._work = sum([native.work for native in natives], NO_WORK)
        self._cycles = sum([native.cycles for native in natives])

    def _go_on_without(self, i: int) -> None:
        """Run the entries from the i-th on by their handlers, and keep nothing that is not read."""
        entries = self._entries
        self._steps.clear()
        self._refuse_if(True, "the tensors of the step take too much memory to be kept")
        for ends in entries.ends[:i]:
            self._forget(ends)
        for action, ends in zip(entries.actions[i:], entries.ends[i:], strict=True):
            action()
            self._forget(ends)
        self._values = list(entries.values)

    def _forget(self, numbers: Sequence[int]) -> None:
        for n in numbers:
            self._entries.values[n] = None

    def _refuse_if(self, is_so: bool, reason: str) -> None:
        if is_so:
            self.refusal = self.refusal or reason

    def _wrote_arguments(
        self, arguments: Sequence[torch.Tensor], versions: Sequence[int]
    ) -> bool:
        """Whether the step writes into an argument, which then gets what its twin has now."""
        is_written = False
        for x, twin, version in zip(arguments, self._arguments, versions, strict=True):
            if twin._version != version:
                is_written = True
                _once(x).copy_(_once(twin))
                _give_facts(x, _facts_of(twin))
        return is_written

    def _keep_handlers(self, facts: Sequence[Sequence[dict[str, Any]]]) -> bool:
        """An entry runs by its handler if a later one has changed what is known of its memory.

        False where that entry computes: others may read memory that only its calls write.
        """
        for i, (step, facts_then) in enumerate(zip(self._steps, facts, strict=True)):
            if step.native is None or not step.native.is_new:
                continue
            for number, before in zip(step.results, facts_then, strict=True):
                after = _facts_of(self._values[number])
                if after.get(FORMAT_MARK) != before.get(FORMAT_MARK):
                    if step.native.places or step.native.cycles:
                        return False
                    self._steps[i] = step._replace(native=None, runs=())
        return True

    def _value(self, slot: Slot) -> Any:
        return self._entries.values[self._entries.number(slot)]

    def _begin(self, arguments: Sequence[torch.Tensor]) -> None:
        """Arguments, and what a step makes of numbers, in memory of the tape."""
        values = self._entries.values
        for i in self._constants:
            constant = self._tape.outside[i].tensor
            if self._values:
                self._values[i].copy_(constant)
            else:
                values[i] = constant.clone()
        for x, static in zip(arguments, self._arguments, strict=True):
            _once(static).copy_(_once(x))
        first = self._entries.number(Slot("argument", 0))
        values[first : first + len(arguments)] = self._arguments

    def _add(
        self, native: NativeEntry | None, action: Callable[[], None], begun: int,
        results: tuple[int, ...], update: Callable[[], bool] | None,
    ) -> None:
        runs: tuple[tuple[Again, int], ...] = ()
        if native is not None:
            first = len(self._places)
            runs = tuple([(again, first + i) for again, i in native.runs])
            self._places += native.places
        self._steps.append(_Step(native, runs, action, begun, results, update))

    # Every time -----------------------------------------------------------------------------

    def run(self, arguments: Sequence[torch.Tensor]) -> None:
        """The step on these arguments."""
        entries, session = self._entries, self._session
        entries.values = list(self._values)
        self._begin(arguments)
        numbers = numbers_of(session.step, self._places)
        done: list[NativeEntry] = []
        is_native = True
        try:
            for step in self._steps:
                if step.native is not None and is_native:
                    if self._runs(step, numbers):
                        done.append(step.native)
                        continue
                    is_native = False
                entries.position = step.begun
                if step.update is not None and is_native:
                    if step.update():
                        continue
                    is_native, entries.position = False, step.begun
                step.action()
                self._settle(step)
        finally:
            self._account(done)
        self._n_falls += not is_native
        self._refuse_if(
            self._n_falls >= _MOST_FALLS, "numbers of the step need the handlers again and again"
        )

    def _runs(self, step: _Step, numbers: NDArray[np.uint64]) -> bool:
        """Whether the calls of an entry have results; they are there then."""
        for again, first in step.runs:
            if not again(numbers, first):
                return False
        native = step.native
        assert native is not None
        for tensor, row in native.rows:
            self._session.device.ledger.add(tensor, row)
        self._session.memory.of_passes |= native.formats
        return True

    def _settle(self, step: _Step) -> None:
        """What a handler has made becomes that of the tensors of the tape."""
        values = self._entries.values
        for number in step.results:
            static, fresh = self._values[number], values[number]
            if fresh is static:
                continue
            if storage_of(fresh) != storage_of(static):
                static.copy_(fresh)
                _give_facts(static, _facts_of(fresh))
            values[number] = static

    def _account(self, done: Sequence[NativeEntry]) -> None:
        """What ran below its handlers is accounted for as by them."""
        session = self._session
        self._n_native = len(done)
        if len(done) == sum([step.native is not None for step in self._steps]):
            session.account.repeat(self._work)
            session.device.vector_cycles += self._cycles
            return
        for native in done:
            session.account.repeat(native.work)
            session.device.vector_cycles += native.cycles

    # What leaves the step ---------------------------------------------------------------------

    def leaving(
        self, slots: Sequence[Slot], arguments: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Copies of tensors; those of tensors that share memory share it too.

        What is a tensor from outside or an argument, or a view of one, leaves as it is.
        """
        tensors = [self._values[self._entries.number(slot)] for slot in slots]
        if self._is_plain is None:
            self._is_plain = self._are_plain(tensors)
        storages = {
            storage_of(twin): x for twin, x in zip(self._arguments, arguments, strict=True)
        }
        return [
            arguments[slot.number] if slot.kind == "argument"
            else _plain_copy(x) if is_plain else self._shared_copy(x, storages)
            for slot, x, is_plain in zip(slots, tensors, self._is_plain, strict=True)
        ]

    def _are_plain(self, tensors: Sequence[torch.Tensor]) -> list[bool]:
        """Of each, whether it alone has its memory, and all of it."""
        times = Counter([storage_of(x) for x in tensors])
        not_copied = self._tape.storages.union(map(storage_of, self._arguments))
        return [
            times[storage_of(x)] == 1 and storage_of(x) not in not_copied
            and x.is_contiguous() and x.numel() * x.element_size() == x.untyped_storage().nbytes()
            for x in tensors
        ]

    def _shared_copy(self, x: torch.Tensor, storages: dict[int, torch.Tensor]) -> torch.Tensor:
        storage = storage_of(x)
        if storage in self._tape.storages:
            return x
        whole = storages.get(storage)
        if whole is None:
            whole = storages[storage] = _copy_of_memory(x)
        if whole.dtype != x.dtype:
            whole = whole.view(x.dtype)
        # The twin of an argument begins its memory, the argument lies somewhere in its own.
        return whole.as_strided(x.shape, x.stride(), whole.storage_offset() + x.storage_offset())


def _plain_copy(x: torch.Tensor) -> torch.Tensor:
    copy = x.clone()
    vars(copy.untyped_storage()).update(vars(x.untyped_storage()))
    return copy


def _facts_of(x: torch.Tensor) -> dict[str, Any]:
    """What the session knows of the memory of a tensor: formats, roles, what waits there."""
    return dict(vars(x.untyped_storage()))


def _give_facts(x: torch.Tensor, facts: dict[str, Any]) -> None:
    attributes = vars(x.untyped_storage())
    attributes.clear()
    attributes.update(facts)


def _copy_of_memory(x: torch.Tensor) -> torch.Tensor:
    """All memory of a tensor in a row, with what the session knows of it."""
    return _row_of(x, 0, x.untyped_storage().nbytes() // x.element_size())


def _twin_of(x: torch.Tensor) -> torch.Tensor:
    """Memory for an argument like this one: from its first number to its last."""
    n = 1 + sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    row = _row_of(x, x.storage_offset(), n if x.numel() else 0)
    return row.as_strided(x.shape, x.stride(), 0)


def _row_of(x: torch.Tensor, begin: int, n: int) -> torch.Tensor:
    """A copy of n numbers of a tensor's memory, with what the session knows of it."""
    copy = torch.empty(n, dtype=x.dtype).copy_(x.detach().as_strided((n,), (1,), begin))
    _give_facts(copy, _facts_of(x))
    return copy


def _once(x: torch.Tensor) -> torch.Tensor:
    """A view without the dimensions in which a tensor repeats its memory."""
    strides = x.stride()
    if 0 not in strides:
        return x
    shape = [n if stride else min(n, 1) for n, stride in zip(x.shape, strides, strict=True)]
    return x.as_strided(shape, strides, x.storage_offset())


def _is_unwatched(session: NativeTapeSession) -> bool:
    """Whether nothing looks at operations: no counts, no observer, random bits of Philox."""
    device, memory = session.device, session.memory
    return (
        device.counts is None and memory.watch is None and memory.births is None
        and device.source.seed is not None and device.clock.first == 0
    )


def _end_of(tape: StepTape) -> int:
    """Number of the entry that ends the step: what is behind it belongs to the next one."""
    for i, entry in enumerate(tape.entries):
        if isinstance(entry, EventEntry) and entry.kind == "step ends":
            return i
    return len(tape.entries)
