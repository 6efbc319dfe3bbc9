"""Which entries of a tape run below their handlers: by the native calls that a handler has made.

A handler runs once while its calls are noted (`fpsim.elementwise.notes`). Its entry is native where
every number that a call reads is in memory that the tape knows, or a constant, and every result is
memory that a call has written. What a handler does beside such calls must not depend on numbers:
`NATIVE` lists those of which that is so. Everything else stays with its handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.notes import Again, CallNotes
from fpsim.records.formats import Format
from ipu.frontends.torch.capture.tape import (
    CalledPlace,
    EventEntry,
    OperationEntry,
    Slot,
    filled,
    slots_of,
)
from ipu.frontends.torch.gradients import Gradients
from ipu.frontends.torch.noted import MachineSession, NotedWork, note_work
from ipu.frontends.torch.values import FORMATS
from ipu.machine.cost.ledger import LedgerRow
from ipu.run.account import NO_WORK, AccountedWork
from ipu.run.noted import KnownMemory, arguments_noted, in_order, replacing
from ipu.run.places import Place, number

__all__ = ["EntryNoting", "NativeEntry", "NotedSession", "filling", "is_constant_gradient"]

_NATIVE = """
    add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Scalar mul.Tensor mul.Scalar div.Tensor
    div.Scalar add_.Tensor sub_.Tensor mul_.Tensor div_.Tensor add_.Scalar mul_.Scalar div_.Scalar
    sqrt.default square.default exp.default log.default tanh.default sigmoid.default erf.default
    rsqrt.default reciprocal.default relu.default relu_.default silu.default mish.default
    tanh_backward.default sigmoid_backward.default silu_backward.default threshold_backward.default
    gelu.default gelu_backward.default mm.default bmm.default addmm.default baddbmm.default
    sum.default sum.dim_IntList mean.default mean.dim mse_loss.default mse_loss_backward.default
    _softmax.default _softmax_backward_data.default _log_softmax.default
    _log_softmax_backward_data.default _safe_softmax.default nll_loss_forward.default
    nll_loss_backward.default native_layer_norm.default native_layer_norm_backward.default
    convolution.default convolution_backward.default max_pool2d_with_indices.default
    max_pool2d_with_indices_backward.default
"""
_MOVES = """
    clone.default _unsafe_view.default stack.default cat.default where.self tril.default
    triu.default ones.default zeros.default ones_like.default zeros_like.default full.default
    full_like.default scalar_tensor.default arange.default arange.start eq.Scalar ne.Scalar
    eq.Tensor logical_not.default bitwise_not.default embedding.default index_select.default
    gather.default constant_pad_nd.default flip.default select_backward.default
    slice_backward.default
"""

#: Overloads whose handlers decide by shapes, formats and options alone, but in calls that are
#: noted.
NATIVE = frozenset(_NATIVE.split())
#: What moves numbers as torch does, in the same way at every call.
MOVES = frozenset(_MOVES.split())
#: Kinds of operations that round nothing.
_MOVING = {"exact", "integer"}
_NO_NUMBERS = np.zeros(0, np.uint64)


class NotedSession(MachineSession, Protocol):
    """What noting asks of a session."""

    gradients: Gradients
    step: int
    replica: int


class NativeEntry(NamedTuple):
    """An entry that runs without its handler.

    runs      its calls, and where the numbers of each begin among those of the entry.
    places    of its stochastic operations: what stands behind the step in the text, and k.
    work      what the account is told.
    rows      of the ledger, by tensor.
    cycles    of the vector unit.
    formats   that it computes in, of a backward pass.
    is_new    its results are memory of its own.
    """

    runs: tuple[tuple[Again, int], ...]
    places: tuple[tuple[str, int], ...]
    work: AccountedWork
    rows: tuple[tuple[str, LedgerRow], ...]
    cycles: int
    formats: frozenset[Format]
    is_new: bool


class _HandlerRun(NamedTuple):
    """What a handler has done.

    asked     of the machine.
    places    of its stochastic operations.
    saved     for a backward pass.
    """

    asked: NotedWork
    places: Sequence[tuple[Place, int]]
    saved: Sequence[Any]


class EntryNoting:
    """The memory that a tape knows, and how its entries ran."""

    def __init__(self, session: NotedSession) -> None:
        self._session, self._readable = session, KnownMemory()
        self._alive: list[Any] = []

    @property
    def n_bytes(self) -> int:
        """Bytes of all memory that is known."""
        return self._readable.n_bytes

    # Memory ---------------------------------------------------------------------------------

    def know(self, x: torch.Tensor) -> None:
        """All memory of a tensor, which the tape keeps."""
        storage = x.untyped_storage()
        self._readable.add(storage.data_ptr(), storage.data_ptr() + storage.nbytes())
        self._alive.append(x)

    # An entry -------------------------------------------------------------------------------

    def run(
        self, entry: OperationEntry, action: Callable[[], None], calls: Callable[[], int],
        places: Sequence[CalledPlace], value_of: Callable[[Slot], Any],
    ) -> NativeEntry | None:
        """Run an entry by its handler; how it runs without it, or None.

        calls     how many places of operations have been asked for.
        """
        operands = [value_of(slot) for slot in slots_of((entry.args, entry.kwargs))]
        before = [(x, x.clone()) for x in operands] if _is_written(entry) else []
        ran = self._run_noted(action, calls, places)
        results = [value_of(slot) for slot in slots_of(entry.result)]
        native = None
        if not (entry.is_update or (entry.is_copied and self._copies_parameter(operands))):
            if not ran.places and not ran.asked.notes.calls:
                native = self._moving(entry, ran, operands, results, value_of)
            elif _name_of(entry) in NATIVE:
                native = self._computing(ran, results, before)
        for x in (x for x in results if isinstance(x, torch.Tensor)):
            self.know(x)
        return native

    def _copies_parameter(self, operands: Sequence[Any]) -> bool:
        """Whether the session remembers a copy as one of a parameter."""
        gradients = self._session.gradients
        return any(gradients.is_of_parameter(x) for x in operands if isinstance(x, torch.Tensor))

    def _run_noted(
        self, action: Callable[[], None], calls: Callable[[], int], places: Sequence[CalledPlace]
    ) -> _HandlerRun:
        session, saved, first = self._session, list[Any](), calls()
        with ExitStack() as stack:
            replacing(stack, session.memory, "save", lambda save: arguments_noted(save, saved))
            _, work = note_work(session, action)
        asked = [
            (Place(session.step, w.micro_batch, session.replica, w.layer, w.direction), k)
            for _, w, _, k in places[first : calls()]
        ]
        return _HandlerRun(work, asked, saved)

    # Moves ----------------------------------------------------------------------------------

    def _moving(
        self, entry: OperationEntry, ran: _HandlerRun, operands: Sequence[Any],
        results: Sequence[Any], value_of: Callable[[Slot], Any],
    ) -> NativeEntry | None:
        """A view of known memory, or what torch moves as the session does."""
        asked = ran.asked
        if not {kind for kind, _ in asked.work.calls} <= _MOVING or asked.rows or ran.saved:
            return None
        if _is_written(entry):
            return None
        storages = {x.untyped_storage()._cdata for x in operands if isinstance(x, torch.Tensor)}
        if results and all(x.untyped_storage()._cdata in storages for x in results):
            return _native(ran, (), is_new=False)
        if _name_of(entry) not in MOVES or len(results) != 1 or asked.cycles:
            return None
        move, before = _move(entry, results[0], value_of), results[0].clone()
        move(_NO_NUMBERS, 0)
        return _native(ran, [(move, 0)]) if _same(before, results[0]) else None

    # Calls ----------------------------------------------------------------------------------

    def _computing(
        self, ran: _HandlerRun, results: Sequence[Any],
        operands: Sequence[tuple[torch.Tensor, torch.Tensor]],
    ) -> NativeEntry | None:
        """The calls of a handler, if nothing else can have made its results.

        operands    of an operation in place, and copies of what they were.
        """
        notes = ran.asked.notes
        if not notes.is_whole or any(w.direction == "optimizer" for w, _ in ran.places):
            return None
        for call in notes.calls:
            if not self._readable.takes(call, lambda x: self._is_constant(x, notes)):
                return None
            self._alive += call.results
        written = notes.starts()
        if not all(x.data_ptr() in written for x in results):
            return None
        if not all(map(self._may_save, ran.saved)):
            return None
        return self._checked(ran, results, operands)

    def _is_constant(self, x: NDArray[Any], notes: CallNotes) -> bool:
        """Whether it is a number that the session keeps for a number of Python."""
        return notes.is_constant(x) or (x.shape == () and self._session.memory.is_constant(x))

    def _may_save(self, saved: Any) -> bool:
        """Whether what waits for a backward pass is memory of the tape, or no number."""
        if isinstance(saved, Array):
            return self._readable.holds(saved.carrier)
        if isinstance(saved, (list, tuple)):
            return all(map(self._may_save, saved))
        return isinstance(saved, (int, float, str, bool, Format, torch.Tensor, type(None)))

    def _checked(
        self, ran: _HandlerRun, results: Sequence[Any],
        operands: Sequence[tuple[torch.Tensor, torch.Tensor]],
    ) -> NativeEntry | None:
        """The entry, if its calls give the same results once more."""
        runs, numbers = in_order(ran.asked.notes)
        n = len(numbers)
        drawn_at = {
            number(place, k + i): (place, k + i) for place, k in ran.places for i in range(n)
        }
        if any(x not in drawn_at for x in numbers):
            return None
        after, drawn = [x.clone() for x in results], np.array(numbers, np.uint64)
        for x, before in operands:
            x.copy_(before)
        is_equal = all(again(drawn, i) for again, i in runs) and all(map(_same, after, results))
        for x, values in zip(results, after, strict=True):
            x.copy_(values)
        places = [drawn_at[x] for x in numbers]
        return _native(ran, runs, places, is_new=not operands) if is_equal else None


def _native(
    ran: _HandlerRun, runs: Sequence[tuple[Again, int]], places: Iterable[tuple[Place, int]] = (),
    *, is_new: bool = True,
) -> NativeEntry:
    asked, texts = ran.asked, tuple([(place.text.partition("/")[2], k) for place, k in places])
    return NativeEntry(
        tuple(runs), texts, asked.work, tuple(asked.rows), asked.cycles, asked.formats, is_new
    )


def is_constant_gradient(entry: Any, value_of: Callable[[Slot], Any]) -> bool:
    """Whether an event makes a first gradient that is the factor of the session, not rounded."""
    if not isinstance(entry, EventEntry) or entry.kind != "first gradient":
        return False
    root, *incoming = filled(entry.operands, value_of)
    return incoming in ([], [None]) and root.dtype not in FORMATS


def filling(x: torch.Tensor) -> NativeEntry:
    """What fills a tensor with the numbers that it has now."""
    numbers = x.clone()
    return NativeEntry(
        ((lambda *_: x.copy_(numbers) is x, 0),), (), NO_WORK, (), 0, frozenset(), is_new=True
    )


def _name_of(entry: OperationEntry) -> str:
    return str(entry.overload).removeprefix("aten.")


def _is_written(entry: OperationEntry) -> bool:
    arguments = entry.overload._schema.arguments
    return any(a.alias_info is not None and a.alias_info.is_write for a in arguments)


def _move(
    entry: OperationEntry, result: torch.Tensor, value_of: Callable[[Slot], Any]
) -> Again:
    """Puts into a result what torch gives; its operands stay the same tensors."""
    overload = entry.overload
    args, kwargs = filled(entry.args, value_of), filled(entry.kwargs, value_of)
    if _name_of(entry) == "clone.default":
        source = args[0]
        return lambda *_: result.copy_(source) is result
    return lambda *_: result.copy_(overload(*args, **kwargs)) is result


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(one.contiguous().numpy().tobytes() == other.contiguous().numpy().tobytes())
