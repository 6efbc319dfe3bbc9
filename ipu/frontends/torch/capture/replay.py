"""A tape that runs: its operations in order, on the tensors of now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import _disable_current_modes

from fpsim.state.processor import usual_arithmetic
from ipu.frontends.torch.capture.native_tape import NativeTape, NativeTapeSession
from ipu.frontends.torch.capture.tape import (
    CalledPlace,
    EventEntry,
    OperationEntry,
    Slot,
    StepTape,
    UpdateEntry,
    filled,
    slots_of,
)
from ipu.frontends.torch.gradients import Gradients
from ipu.frontends.torch.layers import Layers
from ipu.frontends.torch.mode import MachineMode
from ipu.frontends.torch.roots import Roots
from ipu.frontends.torch.updates import StepRows
from ipu.run.account import AccountedWork

__all__ = ["ReplayedSession", "StepReplay"]

Action = Callable[[], None]

#: Tapes below the handlers that are made of a step, of which others did not hold any more.
_MOST_NOTED = 4


class ReplayedSession(NativeTapeSession, Protocol):
    """What a replay asks of a session."""

    layers: Layers
    roots: Roots
    gradients: Gradients
    mode: MachineMode
    step_rows: StepRows
    replay: StepReplay | None

    def updated(self, args: Any, kwargs: Any, result: Any) -> None: ...
    def start_backward(self) -> None: ...
    def end_backward(self) -> None: ...
    def start_update(self, optimiser: torch.optim.Optimizer) -> None: ...


class StepReplay:
    """One tape on one session.

    n_native      operations that ran below their handlers in the last step.
    why_handlers  why no operation does; "" where nothing is against it.
    """

    def __init__(self, session: ReplayedSession, tape: StepTape) -> None:
        self._session, self._tape = session, tape
        self.n_native, self.why_handlers = 0, ""
        #: Places of operations that were asked for in this step.
        self.position = 0
        sizes = {
            "outside": len(tape.outside), "gradient": len(tape.leaves),
            "argument": tape.n_arguments, "result": tape.n_results,
        }
        #: Where tensors of a kind begin among the values.
        self._starts: dict[str, int] = {}
        for kind in sizes:
            self._starts[kind] = sum(sizes[before] for before in self._starts)
        self._before: list[Any] = [outside.tensor for outside in tape.outside]
        self._before += [None] * (sum(sizes.values()) - len(self._before))
        self._constants = [i for i, outside in enumerate(tape.outside) if outside.is_constant]
        self.values = self._before
        self.actions = [self._action(entry) for entry in tape.entries]
        self.ends = self._last_uses(tape)
        self._uncomputed = tape.uncomputed()
        #: Tensors that are there behind the step.
        self._leaving = list(dict.fromkeys(slots_of((tape.gradients, tape.returned))))
        #: The tape below the handlers, how often one was made, and why none is made any more.
        self._native: NativeTape | None = None
        self._n_noted, self._given_up = 0, ""
        #: By identity of the entry of a loss, what reading its number is in the account.
        self._read: dict[int, AccountedWork] = {}

    def number(self, slot: Slot) -> int:
        """Of a tensor among the values."""
        return self._starts[slot.kind] + slot.number

    def _value(self, slot: Slot) -> Any:
        return self.values[self._starts[slot.kind] + slot.number]

    def _fill(self, template: Any) -> Any:
        return filled(template, self._value)

    def _last_uses(self, tape: StepTape) -> list[tuple[int, ...]]:
        """Of each entry, numbers of the values that nothing reads afterwards."""
        last: dict[int, int] = {}
        for i, entry in enumerate(tape.entries):
            for slot in slots_of(entry):
                last[self.number(slot)] = i
        for slot in slots_of((tape.gradients, tape.returned)):
            last.pop(self.number(slot), None)
        ends: dict[int, list[int]] = {}
        for number, i in last.items():
            if number >= self._starts["gradient"]:
                ends.setdefault(i, []).append(number)
        return [tuple(ends.get(i, ())) for i in range(len(tape.entries))]

    # Entries --------------------------------------------------------------------------------

    def _action(self, entry: Any) -> Action:
        if isinstance(entry, OperationEntry):
            return self._operation(entry)
        if isinstance(entry, UpdateEntry):
            return lambda: self._update(entry)
        return lambda: self._event(entry)

    def _operation(self, entry: OperationEntry) -> Action:
        store, plan, overload = self._storing(entry.result), entry.plan, entry.overload
        fill, kwargs = self._filling(entry.args), entry.kwargs
        if entry.is_view and not slots_of(kwargs):
            return lambda: store(overload(*fill(), **kwargs))
        if entry.is_update or entry.is_copied:
            return lambda: store(self._told(entry))
        if slots_of(kwargs):
            return lambda: store(plan(fill(), self._fill(kwargs)))
        return lambda: store(plan(fill(), dict(kwargs)))

    def _told(self, entry: OperationEntry) -> Any:
        """The result of a copy or of a part of an update, of which the session is told."""
        args, kwargs = self._fill(entry.args), self._fill(entry.kwargs)
        result = entry.plan(args, kwargs)
        if entry.is_update:
            self._session.updated(args, kwargs, result)
        else:
            self._session.gradients.copied(args[0], result)
        return result

    def _filling(self, args: tuple[Any, ...]) -> Callable[[], tuple[Any, ...]]:
        """Arguments with the values of now."""
        if any(slots_of(x) and not isinstance(x, Slot) for x in args):
            return lambda: self._fill(args)
        places = [(i, self.number(x)) for i, x in enumerate(args) if isinstance(x, Slot)]

        def fill() -> tuple[Any, ...]:
            arguments, values = list(args), self.values
            for i, number in places:
                arguments[i] = values[number]
            return tuple(arguments)

        return fill

    def _storing(self, result: Any) -> Callable[[Any], None]:
        """Put results where later operations find them."""
        first = self._starts["result"]
        if isinstance(result, Slot):
            number = self.number(result)
            if number < first:
                return lambda value: None

            def store(value: Any) -> None:
                self.values[number] = value

            return store
        if not isinstance(result, tuple):
            return lambda value: None
        stores = [self._storing(item) for item in result]

        def store_all(values: Any) -> None:
            for store, value in zip(stores, values, strict=True):
                store(value)

        return store_all

    def _update(self, entry: UpdateEntry) -> None:
        session = self._session
        arguments = entry.arguments(self._fill)
        with session.mode:  # as torch's function is called
            session.step_rows.again(entry.name, entry.row, arguments)

    def noted_update(self, entry: UpdateEntry) -> Callable[[], bool] | None:
        """Run an update; what repeats it on the same tensors, if that is one call.

        That gives False, and nothing has happened, where the update has to run as it is written.
        """
        session = self._session
        with session.mode:
            repeated = session.step_rows.noted(entry.name, entry.row, entry.arguments(self._fill))
        if repeated is None:
            return None
        return lambda: repeated.run(entry.numbers())

    def _event(self, entry: EventEntry) -> None:
        session, layers, operands = self._session, self._session.layers, entry.operands
        if entry.kind == "loss":
            self._loss(entry, self._fill(operands[0]))
        elif entry.kind == "first gradient":
            self.values[self.number(entry.result)] = session.roots.root_gradient(
                *self._fill(operands)
            )
        elif entry.kind == "gradients":
            leaves = []
            for leaf, gradient in self._fill(operands):
                _give(leaf, gradient)
                leaves.append(leaf)
            session.gradients.receive(leaves)
        elif entry.kind == "backward begins":
            session.start_backward()
        elif entry.kind == "backward ends":
            layers.micro_batch += 1
            session.end_backward()
        elif entry.kind == "update begins":
            layers.in_update = True
            session.start_update(operands[0])
        else:
            assert entry.kind == "step ends", entry.kind
            layers.end_step()

    def _loss(self, entry: EventEntry, root: torch.Tensor) -> None:
        """A backward pass begins; how its number is read is accounted for as the first time."""
        session, work = self._session, self._read.get(id(entry))
        if self._native is not None and work is not None:
            session.roots.note_loss(root)
            session.account.repeat(work)
            return
        before = session.account.work()
        with session.mode:
            session.roots.note_loss(root)
        self._read[id(entry)] = session.account.work() - before

    # A step ---------------------------------------------------------------------------------

    def next_call(self, operation: str) -> CalledPlace:
        """The place of the operation that asks for it now."""
        calls, position = self._tape.calls, self.position
        call = calls[position] if position < len(calls) else None
        self.position = position + 1
        if call is None or call.operation != operation:
            raise RuntimeError(
                f"{operation} asks for a place where the captured step has "
                f"{call.operation if call else 'none'}; run the step without captured()"
            )
        return call

    @usual_arithmetic
    def run(self, arguments: Sequence[torch.Tensor]) -> Any:
        """The step on these arguments; what it returns."""
        session = self._session
        self.values = list(self._before)
        self.position, session.replay = 0, self
        try:
            with (
                _disable_current_modes(), torch._C._AutoDispatchBelowAutograd(),
                torch._C.DisableTorchFunctionSubclass(), _without_gradients(),
            ):
                native = self._run_below(arguments)
                if native is None:
                    self._run_handlers(arguments)
                returned = self._left(native, arguments)
            for name, n in self._uncomputed.items():
                session.account.add_calls("exact", name, n)
            return returned
        finally:
            session.replay, self.values = None, self._before

    def _left(self, native: NativeTape | None, arguments: Sequence[torch.Tensor]) -> Any:
        """Leaves have their gradients after the step; what it returns."""
        slots = self._leaving
        if native is None:
            values = [self._value(slot) for slot in slots]
        else:
            values = native.leaving(slots, arguments)
        tensors = dict(zip(slots, values, strict=True))
        for leaf, slot in zip(self._tape.leaves, self._tape.gradients, strict=True):
            _give(leaf, None if slot is None else tensors[slot])
        return filled(self._tape.returned, tensors.__getitem__)

    def _run_below(self, arguments: Sequence[torch.Tensor]) -> NativeTape | None:
        """Run the step below its handlers, or note what they do.

        None, and nothing has run, where handlers have to run.
        """
        native, session = self._native, self._session
        self.n_native = 0
        if native is not None and native.fits():
            native.run(arguments)
            self.n_native = native.n_native
        else:
            self._native = None
            self.why_handlers = self._given_up or NativeTape.obstacle(
                session, self._tape, arguments
            )
            if self.why_handlers:
                return None
            native = self._native = NativeTape(session, self._tape, self, arguments)
            native.note(arguments)
            self._n_noted += 1
            if self._n_noted >= _MOST_NOTED:
                self._given_up = "rules or places of tensors from outside change again and again"
        if native.refusal:
            self._native, self._given_up = None, native.refusal
        return native

    def _run_handlers(self, arguments: Sequence[torch.Tensor]) -> None:
        values, leaves = self.values, self._tape.leaves
        start = self._starts["gradient"]
        values[start : start + len(leaves)] = [leaf.grad for leaf in leaves]
        start = self._starts["argument"]
        values[start : start + len(arguments)] = arguments
        for i in self._constants:
            values[i] = values[i].clone()
        for action, ends in zip(self.actions, self.ends, strict=True):
            action()
            for number in ends:
                values[number] = None


def _give(leaf: torch.Tensor, gradient: torch.Tensor | None) -> None:
    if leaf.grad is not gradient:
        leaf.grad = gradient


@contextmanager
def _without_gradients() -> Iterator[None]:
    """Gradients are off inside, without a block of the program being opened."""
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        yield
    finally:
        torch._C._set_grad_enabled(before)
