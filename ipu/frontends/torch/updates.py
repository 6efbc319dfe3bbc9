"""Steps of torch's optimisers are rows of the table of updates, one tensor after the other.

torch.optim calls a function of its own for each group (`_single_tensor_…`). In a session that
function names a row instead, which has the bits, flags and random places of torch's operations in
order. `StepRows.takes` alone decides where torch's operations stay: outside of a step, with options
that are no numbers (`lr` as a tensor), `capturable`, `differentiable`, sparse or complex numbers,
gradients from outside that have no format, subclasses of tensors, and under other modes of torch,
which look at operations.

Source    PyTorch 2.13, torch/optim (which function computes a step, and its arguments).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache, partial, wraps
from importlib import import_module
from inspect import signature
from typing import Any, NamedTuple, Protocol
from weakref import ref

import numpy as np
import torch
from numpy.typing import NDArray
from torch.autograd.graph import increment_version
from torch.utils._python_dispatch import _disable_current_modes

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from fpsim.records.types import Carrier
from fpsim.state.memory import memory_address
from fpsim.state.processor import usual_arithmetic
from fpsim.state.tallies import ValueTally
from ipu.frontends.torch.aten import Call
from ipu.frontends.torch.capture.recording import StepRecording
from ipu.frontends.torch.changing import Changer
from ipu.frontends.torch.errors import is_foreign, user_line
from ipu.frontends.torch.layers import Layers
from ipu.frontends.torch.observing import WeightObserver
from ipu.frontends.torch.shadowing import Shadowing
from ipu.frontends.torch.values import HALVES, Memory, TensorMap, stored
from ipu.ops.updates import UPDATES, Around, Updated, UpdateRow
from ipu.ops.updates.observed import UNOBSERVED, Observed
from ipu.ops.updates.repeated import RepeatedUpdate, RepeatedUpdates
from ipu.ops.updates.together import Changed, UpdateRequest, together_on
from ipu.run.account import Account
from ipu.run.recorder import Recorder

__all__ = ["LISTS", "StepRows"]

_STEP = "state_steps"
#: Arguments of each function that are lists of slots, in the order of the row.
LISTS: dict[str, tuple[str, ...]] = {
    "sgd": ("momentum_buffer_list",),
    "adam": ("exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", _STEP),
    "adagrad": ("state_sums", _STEP),
    "rmsprop": ("square_avgs", "grad_avgs", "momentum_buffer_list", _STEP),
    "adadelta": ("square_avgs", "acc_deltas", _STEP),
    "adamax": ("exp_avgs", "exp_infs", _STEP),
    "nadam": ("exp_avgs", "exp_avg_sqs", "mu_products", _STEP),
    "radam": ("exp_avgs", "exp_avg_sqs", _STEP),
    "rprop": ("prevs", "step_sizes", _STEP),
    "asgd": ("axs", "mus", "etas", _STEP),
}
#: Lists of single numbers, all in binary32: those that the machine computes, and Python's.
_COUNTED, _OF_HOST = (_STEP, "mu_products"), ("mus", "etas")
#: Options that no row has: unusual where they are set.
_UNUSUAL = frozenset((
    "capturable", "differentiable", "has_complex", "has_sparse_grad", "grad_scale", "found_inf",
))
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_DTYPES = (torch.float32, *HALVES)


class Stepping(Protocol):
    """What a step asks of a session."""

    memory: Memory
    account: Account
    layers: Layers
    observer: WeightObserver
    changer: Changer
    is_counting: bool
    shadowing: Shadowing | None
    capture: StepRecording | None
    is_by_operation: bool

    @property
    def is_only_counting(self) -> bool: ...
    @property
    def recorder(self) -> Recorder: ...
    def call(self, operation: str) -> Call: ...
    def failed(self) -> None: ...
    def note_result(
        self, array: Array, operands: Sequence[Array], tally: ValueTally | None = None
    ) -> None: ...
    def note_exponents(self, fmt: Format, exponents: NDArray[np.int64]) -> None: ...


class _Held(NamedTuple):
    """A parameter and its slots as arrays on their own memory.

    tensors  those that live as long as the program lets them.
    spots    where each was when it was read (`StepRows._spot`).
    """

    names: Sequence[str]
    tensors: tuple[ref[torch.Tensor] | None, ...]
    spots: tuple[Any, ...]
    arrays: tuple[Array | None, ...]


class _Turn(NamedTuple):
    """The update of one parameter: its tensors, and what they hold as arrays.

    names    of its slots.
    places   memory of the parameter and of its slots; None for what has other memory as an array.
    """

    parameter: torch.Tensor
    gradient: torch.Tensor
    names: Sequence[str]
    tensors: Sequence[torch.Tensor | None]
    w: Array
    g: Array
    slots: Sequence[Array | None]
    places: Sequence[Carrier | None]


class RepeatedStep:
    """The step of a parameter group on the same tensors, time after time."""

    def __init__(
        self, program: Stepping, name: str, row: UpdateRow, updates: RepeatedUpdates,
        parameters: Sequence[torch.Tensor], written: list[torch.Tensor],
    ) -> None:
        self._program, self._operation, self._updates = program, f"torch.optim.{name}", updates
        self._options, self._written = tuple(row.numbers), written
        self._n_parameters = len(parameters)
        self._n_elements = sum([x.numel() for x in parameters])

    def run(self, options: Mapping[str, Any]) -> bool:
        """One step with these options; False, and nothing has happened, where `again` has to."""
        account, operation = self._program.account, self._operation
        self._program.call(operation)  # `takes` asks for the place too
        call = self._program.call(operation)
        numbers = {option: options[option] for option in self._options}
        changed = self._updates.run(call.device, numbers)
        if changed is None:
            return False
        for fmt, value, change in changed:
            account.constant(call.layer, call.direction, fmt, value, change, call.line)
        account.add_calls("machine", operation, self._n_parameters, self._n_elements)
        increment_version(self._written)
        return True


@cache
def _module_of(name: str) -> Any:
    return import_module(f"torch.optim.{name}")


@lru_cache(maxsize=64)
def _parameters_of(torchs: Callable[..., None]) -> tuple[str, ...]:
    """Names of the parameters of a function; each session asks for all of them."""
    return tuple(signature(torchs).parameters)


class StepRows:
    """torch's functions of steps, as names of rows."""

    def __init__(self, program: Stepping) -> None:
        self._program, self._memory = program, program.memory
        self._held = TensorMap[_Held | None]()
        #: Of the parameters of the step that is asked about; see `_held_by`.
        self._again: list[_Held | None] = []
        #: What joins in a step that is to be repeated; see `noted`.
        self._joining: list[tuple[RepeatedUpdate, _Turn, Updated]] | None = None

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Steps inside are rows."""
        with ExitStack() as stack:
            for name in LISTS:
                module, function = _module_of(name), f"_single_tensor_{name}"
                before = getattr(module, function, None)
                if before is not None:
                    setattr(module, function, self._named(name, before))
                    stack.callback(setattr, module, function, before)
            yield

    def _named(self, name: str, torchs: Callable[..., None]) -> Callable[..., None]:
        row, names = UPDATES[f"torch {name}"], _parameters_of(torchs)

        @wraps(torchs)
        def step(*args: Any, **kwargs: Any) -> None:
            arguments = dict(zip(names, args, strict=False)) | kwargs
            shadowing, capture = self._program.shadowing, self._program.capture
            if not self.takes(name, row, arguments):
                torchs(*args, **kwargs)
            elif shadowing is not None and shadowing.is_on:
                lists = ("params", "grads", *LISTS[name])
                with shadowing.updating(f"torch.optim.{name}", torchs, arguments, lists):
                    self._run(name, row, arguments)
            elif capture is not None:
                with capture.updating(name, row, arguments):
                    self._run(name, row, arguments)
            else:
                self._run(name, row, arguments)

        return step

    def again(self, name: str, row: UpdateRow, arguments: Mapping[str, Any]) -> None:
        """An update that a row has computed before, on the tensors of now."""
        if not self.takes(name, row, arguments):
            raise RuntimeError(
                f"torch.optim.{name} is none of the machine's rows any more; run the step without "
                "captured()"
            )
        self._run(name, row, arguments)

    def noted(
        self, name: str, row: UpdateRow, arguments: Mapping[str, Any]
    ) -> RepeatedStep | None:
        """As `again`; the same step on the same tensors, or None where it is not one call."""
        joined: list[tuple[RepeatedUpdate, _Turn, Updated]] = []
        self._joining = joined
        try:
            self.again(name, row, arguments)
        finally:
            self._joining = None
        together, parameters = together_on(self._memory.device), arguments["params"]
        if together is None or len(joined) != len(parameters):
            return None
        written: list[torch.Tensor] = []
        for update, turn, updated in joined:
            if updated.value.carrier is not update.places[0]:
                return None
            written.append(turn.parameter)
            for tensor, before, place, array in zip(
                turn.tensors, turn.slots, turn.places[1:], updated.slots, strict=True
            ):
                if array is before:
                    continue
                if tensor is None or array is None or array.carrier is not place:
                    return None
                written.append(tensor)
        updates = RepeatedUpdates(together, [update for update, _, _ in joined])
        return RepeatedStep(self._program, name, row, updates, parameters, written)

    # Whether --------------------------------------------------------------------------------

    def takes(self, name: str, row: UpdateRow, arguments: Mapping[str, Any]) -> bool:
        """Whether the row computes the step of a group; else torch's operations do."""
        if not self._program.layers.in_update or torch.is_grad_enabled():
            return False
        if self._program.is_by_operation:
            return False
        if torch._C._len_torch_dispatch_stack() != 1:
            return False
        lists = ("params", "grads", *LISTS[name])
        options = arguments.keys() - lists
        for option in options:  # no generators, which are calls: this runs in every step
            value = arguments[option]
            if option in _UNUSUAL and value:
                return False
            if option not in _UNUSUAL and not isinstance(value, (bool, int, float)):
                return False
        if options - _UNUSUAL != set(row.numbers):
            return False
        call = self._program.call(f"torch.optim.{name}")
        self._again = []
        rows = zip(*(arguments[x] or [None] * len(arguments["params"]) for x in lists), strict=True)
        return call.is_update and all(
            self._takes_tensors(call.policy.param, LISTS[name], *tensors) for tensors in rows
        )

    def _takes_tensors(
        self, fmt: Format, names: Sequence[str], parameter: Any, gradient: Any, *slots: Any
    ) -> bool:
        """Whether one parameter's tensors are numbers of the machine side by side."""
        if not self._is_plain(gradient):
            return False
        if (gradient.shape, gradient.dtype) != (parameter.shape, parameter.dtype):
            return False
        held = self._held_by(names, parameter, slots)
        self._again.append(held)
        if held is not None:
            return self._memory.format_of(gradient) is not None
        if not self._is_plain(parameter) or parameter.dtype not in _DTYPES:
            return False
        formats = {self._memory.format_of(x) for x in (parameter, gradient)}
        if None in formats:
            return False
        for name, x in zip(names, slots, strict=True):
            if x is None:
                continue
            is_single = name in _COUNTED or name in _OF_HOST
            like = ((), torch.float32) if is_single else (parameter.shape, parameter.dtype)
            if not self._is_plain(x) or (x.shape, x.dtype) != like:
                return False
            if name in _OF_HOST and not parameter.ndim:
                return False  # torch gives those of single parameters no format
            if self._memory.format_of(x) is None and not is_single:
                # From outside: it takes the format of its first operation.
                is_all = x.numel() * x.element_size() == x.untyped_storage().nbytes()
                if formats != {fmt} or not is_all:
                    return False
        return True

    def _spot(self, x: torch.Tensor | None) -> Any:
        """Where a tensor is, and what it holds: all that may change about it."""
        return x if x is None else (x.data_ptr(), x.dtype, x.shape, self._memory.format_of(x))

    def _held_by(
        self, names: Sequence[str], parameter: Any, slots: Sequence[Any]
    ) -> _Held | None:
        """A parameter and its slots as they were read in a step before, if they are the same."""
        held = self._held.get(parameter, None)
        if held is None or held.names is not names:
            return None
        for x, before, spot in zip((parameter, *slots), held.tensors, held.spots, strict=True):
            if x is not (before and before()) or self._spot(x) != spot:
                return None
        return held

    @staticmethod
    def _is_plain(x: Any) -> bool:
        is_dense = type(x) in _TENSORS and not is_foreign(x) and not x.is_neg()
        return is_dense and stored(x) is x

    # How ------------------------------------------------------------------------------------

    @usual_arithmetic
    def _run(self, name: str, row: UpdateRow, arguments: Mapping[str, Any]) -> None:
        numbers = {option: arguments[option] for option in row.numbers}
        account = self._program.account
        lists = [arguments[x] for x in LISTS[name]]
        operation, waiting = f"torch.optim.{name}", list[tuple[int, _Turn, Updated]]()
        call, line = self._program.call(operation), ""
        if (together := together_on(self._memory.device)) is not None:
            together.forget()  # what a step that was stopped has left

        def alone(i: int, turn: _Turn) -> None:
            call = self._program.call(operation)
            try:
                updated = self._updated(row, call, turn, numbers)
            except Exception as error:
                self._stopped(error, operation, call)
                raise
            self._take(lists, i, turn, updated)

        with _disable_current_modes():
            for i, (parameter, gradient) in enumerate(
                zip(arguments["params"], arguments["grads"], strict=True)
            ):
                tensors = [slots[i] if slots else None for slots in lists]
                turn = self._turn(call, parameter, gradient, LISTS[name], tensors, self._again[i])
                updated, changed = self._joined(row, call, turn, numbers) or (None, ())
                for fmt, value, change in changed:
                    line = line or call.line
                    account.constant(call.layer, call.direction, fmt, value, change, line)
                if updated is None:
                    self._finish(lists, waiting, alone)
                    alone(i, turn)
                else:
                    waiting.append((i, turn, updated))
                    assert together is not None
                    if together.is_full:
                        self._finish(lists, waiting, alone)
                account.add("machine", operation, parameter.numel())
            self._finish(lists, waiting, alone)

    def _turn(
        self, call: Call, parameter: Any, gradient: Any, names: Sequence[str],
        tensors: Sequence[Any], held: _Held | None,
    ) -> _Turn:
        """One parameter's tensors, as arrays too."""
        memory = self._memory
        g = memory.read(gradient, memory.format_of(gradient) or BINARY32)
        if held is not None:
            w, *before = held.arrays
            assert w is not None
            if memory.births is not None:
                for x, array in zip((parameter, *tensors), held.arrays, strict=True):
                    if array is not None:
                        memory.births.note(array, memory.origins(x))
            memories = [x if x is None else x.carrier for x in held.arrays]
            return _Turn(parameter, gradient, names, tensors, w, g, before, memories)
        slots: list[Array | None] = []
        places: list[Carrier | None] = []
        for name, x in zip(names, tensors, strict=True):
            slot, place = None, None
            if x is not None:
                fmt = memory.format_of(x)
                is_single = name in _COUNTED or name in _OF_HOST
                slot = memory.read(x, fmt or (BINARY32 if is_single else call.policy.param))
                # What holds no format was rounded into other memory.
                place = slot.carrier if fmt is not None else None
            slots.append(slot)
            places.append(place)
        w = memory.read(parameter, memory.format_of(parameter) or BINARY32)
        self._hold(names, parameter, tensors, (w, *slots))
        return _Turn(parameter, gradient, names, tensors, w, g, slots, [w.carrier, *places])

    def _hold(
        self, names: Sequence[str], parameter: Any, slots: Sequence[Any],
        arrays: tuple[Array | None, ...],
    ) -> None:
        """Remember arrays that are the memory of their tensors."""
        tensors = parameter, *slots
        for x, array in zip(tensors, arrays, strict=True):
            if x is not None and (
                self._memory.format_of(x) is None or array is None
                or memory_address(array.carrier) != x.data_ptr()
            ):
                return
        spots = tuple([self._spot(x) for x in tensors])
        refs = tuple([None if x is None else ref(x) for x in tensors])
        self._held[parameter] = _Held(names, refs, spots, arrays)

    def _is_told(self, parameter: torch.Tensor) -> bool:
        """Whether the observer hears of the sums that move a parameter."""
        program = self._program
        return program.is_counting and parameter.requires_grad and not program.changer.widens

    def _joined(
        self, row: UpdateRow, call: Call, turn: _Turn, numbers: Mapping[str, Any]
    ) -> tuple[Updated, Changed] | None:
        """An update that is computed with the others, in the memory of the tensors; or None."""
        together, program = together_on(call.device), self._program
        is_seen = program.is_counting and not program.is_only_counting
        if together is None or is_seen or turn.parameter.dtype in HALVES:
            return None
        observed = UNOBSERVED
        if self._memory.watch is not None:
            moved = partial(program.observer.note_move, turn.parameter)
            observed = Observed(
                program.note_result, program.note_exponents, program.recorder.births.has_origins,
                call.note_constant, moved if self._is_told(turn.parameter) else None,
            )
        request = UpdateRequest(
            row, turn.w, turn.g, turn.slots, numbers, constant=self._memory.constant,
            observed=observed,
        )
        joined = together.add(request, turn.places)
        if joined is not None and self._joining is not None:
            self._joining.append((RepeatedUpdate(request, turn.places), turn, joined[0]))
        return joined

    def _finish(
        self, lists: Sequence[Any], waiting: list[tuple[int, _Turn, Updated]],
        alone: Callable[[int, _Turn], None],
    ) -> None:
        """Compute what waits, one after the other if it must be; parameters take their steps."""
        if not waiting:
            return
        together = together_on(waiting[0][1].w.context.device)
        assert together is not None
        is_computed = together.run()
        written: list[torch.Tensor] = []
        for i, turn, updated in waiting:
            if not is_computed:
                alone(i, turn)
            elif self._memory.watch is None:
                self._take(lists, i, turn, updated, written)
            else:
                self._take(lists, i, turn, updated)
        increment_version(written)  # torch is told that their values have changed
        waiting.clear()

    def _updated(
        self, row: UpdateRow, call: Call, turn: _Turn, numbers: Mapping[str, Any]
    ) -> Updated:
        """The update of one parameter by itself."""
        memory, parameter = self._memory, turn.parameter
        moves: list[Any] = []
        around = Around(
            call.constant, memory.watch,
            (lambda *move: moves.append(move)) if self._is_told(parameter) else None,
            memory.format_of(parameter) if parameter.dtype in HALVES else None,
        )
        updated = row(call.device, turn.w, turn.g, turn.slots, around, **numbers)
        for verb, before, operands, factor, value in moves:
            self._program.observer.note_move(parameter, verb, before, operands, factor, value)
        return updated

    def _take(
        self, lists: Sequence[Any], i: int, turn: _Turn, updated: Updated,
        written: list[torch.Tensor] | None = None,
    ) -> None:
        """A parameter and its slots take their new values.

        written    gets the tensors whose memory has them already; None: none has.
        """
        rows = zip(
            lists, turn.names, turn.tensors, turn.slots, turn.places[1:], updated.slots,
            strict=True,
        )
        for slots, name, tensor, before, place, array in rows:
            if array is before:
                continue
            if written is not None and array.carrier is place:
                written.append(tensor)
            else:
                slots[i] = self._stored(tensor, name, array, turn.gradient)
        if written is not None and updated.value.carrier is turn.places[0]:
            written.append(turn.parameter)
        else:
            self._write(turn.parameter, updated.value)
            self._program.observer.note_reached(turn.parameter)

    def _stored(self, slot: Any, name: str, array: Array, gradient: torch.Tensor) -> torch.Tensor:
        """A slot after the update; a new one lies as the gradient does."""
        memory = self._memory
        if slot is None:
            slot = torch.empty_like(gradient)
            memory.mark(slot, array.format)
        elif name not in _OF_HOST and memory.format_of(slot) is None:
            memory.mark(slot, array.format)
        self._write(slot, array)
        return slot

    def _write(self, x: torch.Tensor, array: Array) -> None:
        x.detach().copy_(torch.from_numpy(array.carrier))
        self._memory.stored(array, x)

    def _stopped(self, error: Exception, operation: str, call: Call) -> None:
        """Tell once where the program was stopped; the step has not happened."""
        at = f", at {line}" if (line := user_line()) else ""
        error.add_note(f"in {operation}, layer {call.layer!r} ({call.direction}){at}")
        self._program.failed()
