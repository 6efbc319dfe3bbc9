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
from functools import wraps
from importlib import import_module
from inspect import signature
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import _disable_current_modes

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from fpsim.state.processor import usual_arithmetic
from ipu.frontends.torch.aten import Call
from ipu.frontends.torch.changing import Changer
from ipu.frontends.torch.errors import is_foreign, user_line
from ipu.frontends.torch.layers import Layers
from ipu.frontends.torch.observing import WeightObserver
from ipu.frontends.torch.values import HALVES, Memory, stored
from ipu.ops.updates import UPDATES, Around, UpdateRow
from ipu.run.account import Account

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
#: Lists of single numbers: those that the machine computes, which have the parameters' format at
#: first, and those that Python computes.
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

    def call(self, operation: str) -> Call: ...
    def failed(self) -> None: ...


class StepRows:
    """torch's functions of steps, as names of rows."""

    def __init__(self, program: Stepping) -> None:
        self._program, self._memory = program, program.memory

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Steps inside are rows."""
        with ExitStack() as stack:
            for name in LISTS:
                module, function = import_module(f"torch.optim.{name}"), f"_single_tensor_{name}"
                before = getattr(module, function, None)
                if before is not None:
                    setattr(module, function, self._named(name, before))
                    stack.callback(setattr, module, function, before)
            yield

    def _named(self, name: str, torchs: Callable[..., None]) -> Callable[..., None]:
        row, names = UPDATES[f"torch {name}"], tuple(signature(torchs).parameters)

        @wraps(torchs)
        def step(*args: Any, **kwargs: Any) -> None:
            arguments = dict(zip(names, args, strict=False)) | kwargs
            if self.takes(name, row, arguments):
                self._run(name, row, arguments)
            else:
                torchs(*args, **kwargs)

        return step

    # Whether --------------------------------------------------------------------------------

    def takes(self, name: str, row: UpdateRow, arguments: Mapping[str, Any]) -> bool:
        """Whether the row computes the step of a group; else torch's operations do."""
        if not self._program.layers.in_update or torch.is_grad_enabled():
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
        rows = zip(*(arguments[x] or [None] * len(arguments["params"]) for x in lists), strict=True)
        return call.is_update and all(
            self._takes_tensors(call.policy.param, LISTS[name], *tensors) for tensors in rows
        )

    def _takes_tensors(
        self, fmt: Format, names: Sequence[str], parameter: Any, gradient: Any, *slots: Any
    ) -> bool:
        """Whether one parameter's tensors are numbers of the machine side by side."""
        both = (parameter, gradient)
        if not all(map(self._is_plain, both)) or parameter.dtype not in _DTYPES:
            return False
        if (gradient.shape, gradient.dtype) != (parameter.shape, parameter.dtype):
            return False
        formats = {self._memory.format_of(x) for x in both}
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

    @staticmethod
    def _is_plain(x: Any) -> bool:
        is_dense = type(x) in _TENSORS and not is_foreign(x) and not x.is_neg()
        return is_dense and stored(x) is x

    # How ------------------------------------------------------------------------------------

    @usual_arithmetic
    def _run(self, name: str, row: UpdateRow, arguments: Mapping[str, Any]) -> None:
        numbers = {option: arguments[option] for option in row.numbers}
        names = LISTS[name]
        lists = [arguments[x] for x in names]
        operation = f"torch.optim.{name}"
        with _disable_current_modes():
            for i, (parameter, gradient) in enumerate(
                zip(arguments["params"], arguments["grads"], strict=True)
            ):
                call = self._program.call(operation)
                slots = [tensors[i] if tensors else None for tensors in lists]
                try:
                    after = self._update(row, call, names, parameter, gradient, slots, numbers)
                except Exception as error:
                    self._stopped(error, operation, call)
                    raise
                for tensors, slot in zip(lists, after, strict=True):
                    if slot is not None:
                        tensors[i] = slot
                self._program.account.add("machine", operation, parameter.numel())

    def _update(
        self, row: UpdateRow, call: Call, names: Sequence[str], parameter: Any, gradient: Any,
        slots: Sequence[Any], numbers: Mapping[str, Any],
    ) -> list[Any]:
        """One parameter takes its step; the slots after it."""
        program, memory = self._program, self._memory
        moves: list[Any] = []
        is_told = (
            program.is_counting and parameter.requires_grad and not program.changer.widens
        )
        around = Around(
            call.constant, memory.watch, (lambda *move: moves.append(move)) if is_told else None,
            memory.format_of(parameter) if parameter.dtype in HALVES else None,
        )
        held = [
            None if x is None else memory.read(x, self._format(x, name, call))
            for x, name in zip(slots, names, strict=True)
        ]
        w, g = (memory.read(x, memory.format_of(x) or BINARY32) for x in (parameter, gradient))
        updated = row(call.device, w, g, held, around, **numbers)
        after = [
            self._stored(slot, name, array, gradient) if array is not before else slot
            for slot, name, before, array in zip(slots, names, held, updated.slots, strict=True)
        ]
        for verb, before, operands, factor, value in moves:
            program.observer.note_move(parameter, verb, before, operands, factor, value)
        self._write(parameter, updated.value)
        return after

    def _format(self, x: torch.Tensor, name: str, call: Call) -> Format:
        """The format that a slot is read in."""
        return self._memory.format_of(x) or (
            BINARY32 if name in _OF_HOST else call.policy.param
        )

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

    @staticmethod
    def _write(x: torch.Tensor, array: Array) -> None:
        x.detach().copy_(torch.from_numpy(array.carrier))

    def _stopped(self, error: Exception, operation: str, call: Call) -> None:
        """Tell once where the program was stopped; the step has not happened."""
        at = f", at {line}" if (line := user_line()) else ""
        error.add_note(f"in {operation}, layer {call.layer!r} ({call.direction}){at}")
        self._program.failed()
