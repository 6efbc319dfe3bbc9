"""A step that runs eagerly while its operations are noted."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol
from weakref import ref

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from ipu.frontends.torch.capture.tape import (
    CalledPlace,
    Entry,
    EventEntry,
    OperationEntry,
    OutsideTensor,
    Slot,
    StepTape,
    UpdateEntry,
)
from ipu.frontends.torch.gradients import Gradients
from ipu.frontends.torch.layers import Where
from ipu.frontends.torch.roots import Roots
from ipu.frontends.torch.values import FORMATS, Memory
from ipu.run.noted import replacing
from ipu.run.places import PlaceClock

__all__ = ["RecordedSession", "StepRecording", "facts_of", "storage_of"]

#: Elements of a tensor that Python's numbers may have made.
_FEW = 64
#: Methods by which a program reads numbers of a tensor without an operation.
_READERS = ("numpy", "tolist", "__array__", "__dlpack__")
_READING = frozenset({"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero"})
#: Modules of torch that bring back the state of a generator.
_RESTORING = ("torch.utils.checkpoint", "torch.random")
_DIRECTIONS = ("forward", "backward", "optimizer")
_DATA_DEPENDENT = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


class RecordedSession(Protocol):
    """What a recording asks of a session."""

    memory: Memory
    clock: PlaceClock
    roots: Roots
    gradients: Gradients


def storage_of(x: torch.Tensor) -> int:
    """The identity of a tensor's memory."""
    return int(x.untyped_storage()._cdata)


def facts_of(x: torch.Tensor, memory: Memory) -> tuple[Any, ...]:
    """What decides, beside numbers, how a tensor is computed with."""
    return x.shape, x.stride(), x.dtype, x.requires_grad, id(memory.format_of(x)), x.is_leaf


class StepRecording:
    """What a session notes of a step.

    reason    why it cannot be replayed; "" where nothing is against it.
    """

    def __init__(
        self, session: RecordedSession, arguments: Sequence[torch.Tensor],
        leaves: Sequence[torch.Tensor],
    ) -> None:
        self._session, self._memory = session, session.memory
        self.reason = ""
        self._slots: dict[int, tuple[Callable[[], Any], Slot]] = {}
        self._n_results = self._depth = 0
        self._leaves = list(leaves)
        self._storages = {storage_of(x) for x in arguments}
        self._n_arguments = len(arguments)
        self._had_gradients = tuple(leaf.grad is not None for leaf in leaves)
        #: Names that torch's profiler is given, by overload: they count as operations.
        self._names: Counter[str] = Counter()
        self.entries: list[Entry] = []
        self.calls: list[CalledPlace] = []
        self._outside: list[OutsideTensor] = []
        self._start_counts = session.clock.drawn()
        for i, leaf in enumerate(self._leaves):
            if leaf.grad is not None:
                self._know(leaf.grad, Slot("gradient", i))
        for i, x in enumerate(arguments):
            self._know(x, Slot("argument", i))

    def refuse(self, reason: str) -> None:
        """The step cannot be replayed; the first reason is told."""
        self.reason = self.reason or reason

    # Tensors --------------------------------------------------------------------------------

    def _know(self, x: torch.Tensor, slot: Slot) -> None:
        self._slots[id(x)] = ref(x), slot

    def _known(self, x: torch.Tensor) -> Slot | None:
        reference, slot = self._slots.get(id(x), (None, None))
        return slot if reference is not None and reference() is x else None

    def _slot(self, x: torch.Tensor, *, is_constant: bool = False) -> Slot:
        """Of an operand: one that nothing has made is from outside of the step."""
        slot = self._known(x)
        if slot is None:
            slot = Slot("outside", len(self._outside))
            few = is_constant and x.numel() <= _FEW
            # Of a constant a copy is kept: torch counts who holds a tensor.
            self._outside.append(OutsideTensor(x.clone() if few else x, (), few))
            self._know(x, slot)
        return slot

    def _operands(self, value: Any, *, is_constant: bool = False) -> Any:
        if isinstance(value, torch.Tensor):
            return self._slot(value, is_constant=is_constant)
        if isinstance(value, (list, tuple)):
            items = [self._operands(item, is_constant=is_constant) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, dict):
            return {name: self._operands(item) for name, item in value.items()}
        return value

    def _results(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            slot = self._known(value)
            if slot is None:
                slot = Slot("result", self._n_results)
                self._n_results += 1
                self._know(value, slot)
            return slot
        if isinstance(value, (list, tuple)):
            return tuple([self._results(item) for item in value])
        return value

    # What happens ---------------------------------------------------------------------------

    def called(self, operation: str, where: Where, is_replaying: bool, k: int) -> None:
        """An operation asks for its place."""
        if where.direction not in _DIRECTIONS:
            self.refuse(
                f"{operation} runs in a block without gradients inside of the step; evaluate "
                "outside of it"
            )
        self.calls.append(CalledPlace(operation, where, is_replaying, k))

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What happens inside belongs to an operation that is noted as a whole."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def operation(
        self, overload: Any, plan: Any, args: Any, kwargs: Any, result: Any, *,
        is_view: bool, is_copied: bool, is_update: bool,
    ) -> None:
        """An operation has run."""
        if self._depth:
            return
        name = overload._schema.name
        if name.startswith("profiler::"):  # a name for a stretch of the program
            self._names[str(overload)] += 1
            return
        if name in _READING:
            self.refuse(
                "the step reads a number of a tensor (item(), bool() or float()); return the "
                "tensor and read it outside of the step"
            )
        elif any(tag in overload.tags for tag in _DATA_DEPENDENT):
            self.refuse(f"{overload} has a result whose shape depends on numbers")
        is_lifted = name == "aten::lift_fresh"
        operands = self._operands(tuple(args), is_constant=is_lifted)
        options = self._operands(dict(kwargs))
        self.entries.append(OperationEntry(
            overload, plan, operands, options, self._results(result), is_view, is_copied,
            is_update,
        ))

    def event(self, kind: str, *operands: Any) -> None:
        """The session is told something."""
        if not self._depth:
            self.entries.append(EventEntry(kind, operands))

    @contextmanager
    def updating(self, name: str, row: Any, arguments: Mapping[str, Any]) -> Iterator[None]:
        """Around an update of a parameter group by a row."""
        lists = {k: tuple(v) for k, v in arguments.items() if isinstance(v, (list, tuple))}
        slots = self._operands(lists)
        options = {k: v for k, v in arguments.items() if k not in lists}
        with self.inside():
            yield
        for name_of_list, tensors in lists.items():
            for before, after in zip(tensors, arguments[name_of_list], strict=True):
                if before is not after:
                    self.refuse(f"torch.optim.{name} has made its {name_of_list} in this step")
        sources = self._sources(arguments["params"], options, row)
        self.entries.append(UpdateEntry(name, row, slots, options, sources))

    def _sources(self, parameters: Sequence[Any], options: Mapping[str, Any], row: Any) -> Any:
        """Of the numbers of an update: keys of the parameter group that has them."""
        group: dict[str, Any] = next(
            (group for optimiser in self._optimisers() for group in optimiser.param_groups
             if any(p is parameters[0] for p in group["params"])), {},
        )
        sources: dict[str, tuple[dict[str, Any], str, int | None]] = {}
        for name in row.numbers:
            is_beta = name in ("beta1", "beta2") and "betas" in group
            key, item = ("betas", int(name[-1]) - 1) if is_beta else (name, None)
            value: Any = group.get(key)
            value = value if item is None or value is None else value[item]
            if isinstance(value, (int, float)) and repr(value) == repr(options[name]):
                sources[name] = group, key, item
        return sources

    def _optimisers(self) -> list[Any]:
        return [
            entry.operands[0] for entry in reversed(self.entries)
            if isinstance(entry, EventEntry) and entry.kind == "update begins"
        ]

    # Around the step ------------------------------------------------------------------------

    @contextmanager
    def following(self) -> Iterator[None]:
        """Losses, first gradients, leaves of backward passes and readers of numbers are noted."""
        roots, gradients = self._session.roots, self._session.gradients
        drawn = _random_states()
        with ExitStack() as stack:
            replacing(stack, roots, "note_loss", self._loss)
            replacing(stack, roots, "root_gradient", self._root)
            replacing(stack, gradients, "receive", self._receive)
            replacing(stack, torch.autograd, "grad", self._refusing("torch.autograd.grad"))
            for name in ("manual_seed", "seed"):
                replacing(stack, torch, name, self._refusing(f"torch.{name}"))
            replacing(stack, torch, "set_rng_state", self._restoring)
            for name in _READERS:
                replacing(stack, torch.Tensor, name, self._reading)
            yield
        if _random_states() != drawn:
            self.refuse("the step draws numbers of Python's random or of numpy.random")

    def _loss(self, note_loss: Callable[[Any], None]) -> Callable[[Any], None]:
        def noted(root: torch.Tensor) -> None:
            if root.dtype in FORMATS:
                self.refuse(f"its loss is {root.dtype}; only a float32 loss is replayed")
            self.event("loss", self._slot(root))
            with self.inside():
                note_loss(root)

        return noted

    def _root(self, root_gradient: Callable[..., Any]) -> Callable[..., Any]:
        def noted(root: torch.Tensor, incoming: torch.Tensor | None = None) -> torch.Tensor:
            result: torch.Tensor = root_gradient(root, incoming)
            operands = self._slot(root), self._operands(incoming)
            self.entries.append(EventEntry("first gradient", operands, self._results(result)))
            return result

        return noted

    def _receive(self, receive: Callable[[Any], None]) -> Callable[[Any], None]:
        def noted(leaves: Any) -> None:
            reached = list(leaves)
            pairs = [(self._slot(leaf), self._gradient(leaf)) for leaf in reached]
            self.event("gradients", *pairs)
            receive(reached)

        return noted

    def _gradient(self, leaf: torch.Tensor) -> Slot | None:
        if leaf.grad is None:
            return None
        slot = self._known(leaf.grad)
        if slot is None:
            self.refuse(f"a gradient of shape {list(leaf.shape)} comes from no operation")
        return slot

    def _refusing(self, name: str) -> Callable[[Any], Any]:
        def replaced(function: Any) -> Any:
            def refusing(*args: Any, **kwargs: Any) -> Any:
                if not self._depth:
                    self.refuse(f"the step calls {name}")
                return function(*args, **kwargs)

            return refusing

        return replaced

    def _restoring(self, set_rng_state: Callable[[Any], None]) -> Callable[[Any], None]:
        """A checkpointed region draws as before; if it draws nothing, that changes nothing."""
        def restoring(state: torch.Tensor) -> None:
            caller = sys._getframe(1).f_globals.get("__name__")
            with _disable_current_modes():
                is_same = torch.equal(state, torch.get_rng_state())
            if not is_same or caller not in _RESTORING:
                self.refuse("the step calls torch.set_rng_state, as a checkpoint with dropout does")
            set_rng_state(state)

        return restoring

    def _reading(self, method: Any) -> Any:
        def read(x: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._depth and torch._C._len_torch_dispatch_stack():
                self.refuse(
                    f"the step reads the numbers of a tensor ({method.__name__}()); return the "
                    "tensor and read it outside of the step"
                )
            return method(x, *args, **kwargs)

        return read

    def finished(self, result: Any) -> StepTape:
        """The step as a tape; `result` is what it gave."""
        returned = self._returned(result)
        with _disable_current_modes():
            outside = [
                row._replace(facts=facts_of(row.tensor, self._memory)) for row in self._outside
            ]
            storages = frozenset(
                storage_of(row.tensor) for row in self._outside if not row.is_constant
            )
        if storages & self._storages:
            self.refuse("an argument of the step has memory that the step reaches in another way")
        followed = {id(leaf) for leaf in self._leaves}
        if any(x.requires_grad and id(x) not in followed for x, _, _ in outside):
            self.refuse("the step has a parameter that nothing which it names in Python holds")
        gradients = [self._gradient(leaf) for leaf in self._leaves]
        return StepTape(
            self.entries, self.calls, outside, self._leaves, gradients, returned, storages,
            self._had_gradients, self._n_arguments, self._n_results, self._names,
            self._start_counts,
        )

    def _returned(self, value: Any) -> Any:
        """What a step gives back, with slots for tensors."""
        if isinstance(value, torch.Tensor):
            slot = self._known(value)
            if slot is None:
                self.refuse("the step returns a tensor that no operation of it has made")
            return slot
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            items = [self._returned(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if type(value) is dict:
            return {name: self._returned(item) for name, item in value.items()}
        if not isinstance(value, (int, float, str, type(None))):
            self.refuse(f"the step returns a {type(value).__name__}; return tensors and numbers")
        return value


def _random_states() -> tuple[Any, ...]:
    # numpy's state is part of what is compared, though nothing here draws from it.
    state: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), state[1].tobytes(), state[2:]
