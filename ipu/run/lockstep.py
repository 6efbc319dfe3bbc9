"""Shadows of a training by `ipu.learn`: the same training in binary64, step by step beside it.

A twin of the Trainer trains on target="reference", from the machine's first values, with the
batches as the machine took them, its random bits, its loss scale, and its choice of steps that are
skipped. Both compute the same rows in the same order, so result number k of a step has the twin's
number k for its shadow. What an operation's rounding added: its row once more, in binary64, of the
machine's operands (`ipu.run.shadow`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.array import Array
from fpsim.records.formats import BINARY64, Format
from fpsim.state.blas import OneBlasThread
from fpsim.state.processor import usual_arithmetic, usual_arithmetic_in
from ipu import ops
from ipu.learn.loss_scale import LossScale, Scaling, StaticLossScale
from ipu.learn.loss_scale.scaling import as_loss_scale
from ipu.learn.optim import Update
from ipu.learn.tensor import Rule
from ipu.learn.train import Trainer
from ipu.learn.variables import Variable
from ipu.machine.device import Device
from ipu.run.account import split_name
from ipu.run.jointly import StepOperands, jointly, steps_of
from ipu.run.shadow import Shadow, motion, squares_of

__all__ = ["Lockstep"]

Numbers = NDArray[np.floating]
Key = tuple[str, str, str]


class _MachineResult(NamedTuple):
    """A result of the machine.

    value    when it was computed: a later operation may write into its memory.
    local    the row in binary64, of the same operands; None: it rounds nothing.
    """

    key: Key
    array: Array
    value: Numbers
    operands: Sequence[Array]
    local: Numbers | None
    line: str


class _Distance(NamedTuple):
    """How far a result of the machine is from its shadow: `ipu.run.shadow.squares_of`.

    choices    that differ; None: the operation makes none.
    """

    squares: list[float]
    left_out: int
    choices: int | None


class _Beside:
    """Results of a step as the twin computes them, each beside the machine's of the same number.

    distances    one by one; None of results that round nothing.
    """

    def __init__(self, results: Sequence[_MachineResult]) -> None:
        self._results = results
        self.distances: list[_Distance | None] = []
        self._is_alike = True

    @property
    def is_whole(self) -> bool:
        """Whether both computed results of the same shapes."""
        return self._is_alike and len(self.distances) == len(self._results)

    def take(self, shadow: Numbers) -> None:
        """The next result of the twin, which is in the cache now."""
        place = len(self.distances)
        if place == len(self._results) or self._results[place].value.shape != shadow.shape:
            self._is_alike = False
        if self._is_alike:
            self.distances.append(_distance(self._results[place], shadow))


@usual_arithmetic
def _distance(result: _MachineResult, shadow: Numbers) -> _Distance | None:
    if result.local is None:
        return None
    choices = None
    if result.key[2] == "relu" and result.key[1] != "backward":
        choices = int(np.count_nonzero((result.value > 0) != (shadow > 0)))
    return _Distance(*squares_of(result.value, result.local, shadow), choices)


@usual_arithmetic_in("begin_step", "note", "end_step", "finish")
class Lockstep:
    """The twin of a training.

    account    is told of errors, choices, losses and motions.
    line       FILE:LINE of the user's program that runs now.
    seed       of the machine's random bits.
    """

    def __init__(self, account: Shadow, line: Callable[[], str], seed: int) -> None:
        self.account, self._line, self._seed = account, line, seed
        self._reference = _without_cycles(Device("reference"))
        self._context = self._reference.context(BINARY64)
        self._twin: Trainer | None = None
        self._left = account.steps
        self._batch: tuple[Any, Any] = ((), ())
        self._results: list[_MachineResult] = []
        #: Results of this step as they were computed, in binary64, by the array's id.
        self._values: dict[int, Array] = {}
        self._losses: list[float] = []
        #: Variables, and slots, before the first step; of a training that begins there are none.
        self._variables: dict[str, Array] = {}
        self._slots: dict[str, tuple[Array, ...]] = {}
        #: By name: a variable's values at first, machine and shadow.
        self._first: dict[str, tuple[Numbers, Numbers]] = {}
        #: Of the step that runs.
        self._scale: LossScale = as_loss_scale(None)

    @property
    def is_on(self) -> bool:
        """Whether further steps are followed."""
        return self._left > 0

    # The machine ----------------------------------------------------------------------------

    def begin_step(self, training: Trainer, x: ArrayLike | Array, labels: Any) -> None:
        """A step begins; what a step before it left that was stopped is forgotten."""
        self._forget()
        if type(training) is not Trainer:
            self._left = 0
            self.account.rejoined(type(training).__name__, "trains by a plan, in its order")
            return
        if self._twin is None:
            self._variables = {n: v.array for n, v in training.variables.items()}
            self._slots = dict(training.slots)
        fmt, device = training.policy.default.activations, Device(training.device.target)
        batch = device.cast(x, fmt) if isinstance(x, Array) else device.from_host(x, fmt)
        self._batch, scale = (_wide(batch), labels), training.loss_scale
        self._scale = StaticLossScale(scale.value) if isinstance(scale, Scaling) else scale

    def note(self, name: str, rule: Rule, array: Array) -> None:
        """The machine has a result of a layer and direction."""
        key: Key = (*split_name(name), rule.primitive.name)
        try:
            with OneBlasThread():
                local = None if rule.primitive.unit == "none" else self._again(rule)
        except (TypeError, ValueError, NotImplementedError) as problem:
            self.account.rejoined(key[2], str(problem).partition("\n")[0][:80])
            local = None
        value = self._values[id(array)] = self._entered(array)
        self._results.append(
            _MachineResult(key, array, value.carrier, rule.operands, local, self._line()))

    def note_loss(self, loss: Array) -> None:
        """A backward pass of the machine begins."""
        self._losses.append(float(loss))

    # Both -----------------------------------------------------------------------------------

    def end_step(self, training: Trainer, updates: Sequence[Update]) -> None:
        """The machine has made a step: the twin makes it too."""
        step = training.steps - 1
        twin = self._twin
        if twin is None:
            twin = self._twin = self._made(training, updates)
        beside = _Beside(self._results)
        losses: list[float] = []
        twin.device.watch = lambda rule, array: beside.take(array.carrier)
        twin.worker.note_loss = lambda loss: losses.append(float(loss))
        twin.worker.numbering.step, twin.loss_scale = step, self._scale
        before = {n: v.array for n, v in twin.variables.items()}, dict(twin.slots)
        with warnings.catch_warnings(), OneBlasThread():
            warnings.simplefilter("ignore", RuntimeWarning)
            twin.step(*self._batch)
        if not training.applied:  # its loss scale skipped the step
            for name, variable in twin.variables.items():
                variable.array = before[0][name]
            twin.worker.slots = before[1]
        for machine, shadow in zip(self._losses, losses, strict=True):
            self.account.loss(step, machine, shadow)
        self._tell(step, beside)
        self._compare_updates(training, updates)
        self._forget()
        self._left -= 1
        if not self._left:
            self.finish(training)

    def _made(self, training: Trainer, updates: Sequence[Update]) -> Trainer:
        """The twin, with the values that the machine's training had at first."""
        accumulation = training.accumulation
        if accumulation is not None:
            accumulation = replace(accumulation, dtype=BINARY64)
        twin = Trainer(
            training.model,
            jointly(replace(training.optimizer, format=BINARY64)),  # type: ignore[type-var]
            policy="fp64", target="reference", accumulation=accumulation, seed=self._seed,
            check_memory=False,
        )
        _without_cycles(twin.device)
        with OneBlasThread():
            twin.forward(self._batch[0])
        values = {u.variable.name: u.before for u in updates} | self._variables
        for name, variable in twin.variables.items():
            if name in values or variable.trainable:
                first = values.get(name, training.variables[name].array)
                variable.array = self._entered(first)
            self._first[name] = (_wide(variable.array), _wide(variable.array))
        twin.worker.slots = {
            name: tuple(map(self._entered, arrays)) for name, arrays in self._slots.items()
        }
        return twin

    def _entered(self, x: Array) -> Array:
        """An array of the machine as it is now, in binary64."""
        return Array(_wide(x), self._context)

    def _value(self, x: Array) -> Array:
        """An operand in binary64: a result as it was computed, another array as it is now."""
        value = self._values.get(id(x))
        return self._entered(x) if value is None else value

    def _forget(self) -> None:
        self._results, self._values, self._losses = [], {}, []

    def _again(self, rule: Rule) -> Numbers:
        """A rule in binary64, of the machine's operands; a mask that was drawn is the machine's."""
        row, operands = rule.primitive, [self._there(x) for x in rule.operands]
        # In place an operand would be lost, which is a result that is still to be compared.
        options = {name: self._there(x) for name, x in rule.options.items() if name != "in_place"}
        if rule.argument is not None or row is ops.dropout:
            saved: Any = _Mapped(rule.saved, self._there)
            argument = rule.argument or 0
            return row.pull(argument, self._reference, operands[0], saved, **options).carrier
        return row.forward(self._reference, *operands, **options)[0].carrier

    def _there(self, x: Any) -> Any:
        """An argument of a rule, as its row takes it in binary64."""
        if isinstance(x, Array):
            return self._value(x)
        if isinstance(x, Format):
            return BINARY64
        if isinstance(x, tuple):
            items = [self._there(item) for item in x]
            return type(x)._make(items) if hasattr(x, "_make") else tuple(items)
        return x

    def _tell(self, step: int, beside: _Beside) -> None:
        """The results of a step are told, if the twin has computed as many of the same shapes."""
        if not beside.is_whole:
            self.account.rejoined("step", "in binary64 the model computes other operations")
            return
        errors: dict[int, float] = {}
        for result, distance in zip(self._results, beside.distances, strict=True):
            error = max((errors.get(id(x), 0.0) for x in result.operands), default=0.0)
            self.account.line = lambda line=result.line: line  # type: ignore[misc]
            if distance is not None:
                size = result.value.size
                error = self.account.added(
                    result.key, distance.squares, size, error, distance.left_out)
                if distance.choices is not None:
                    self.account.branched(result.key, step, distance.choices, size)
            errors[id(result.array)] = error

    def _compare_updates(self, training: Trainer, updates: Sequence[Update]) -> None:
        if not training.applied:
            return
        assert self._twin is not None
        rule = training.loss_scale.optimizer(training.optimizer)
        wide = replace(rule, format=BINARY64)  # type: ignore[type-var]
        self.account.line = self._line
        rows = [StepOperands(x.before, x.gradient, x.slots) for x in updates]
        steps = steps_of(wide, self._reference, rows, wide.rate)
        for update, local in zip(updates, steps, strict=True):
            key = split_name(update.variable.layer)[0], "optimizer", type(rule).__name__
            shadow = self._twin.variables[update.variable.name].array
            self.account.compared(
                key, update.after.carrier, local.values.carrier, shadow.carrier, 0.0)

    def finish(self, training: Trainer) -> None:
        """What moved is told; the twin is gone."""
        twin, steps = self._twin, self.account.steps - self._left
        self._left, self._twin = 0, None
        for name, (machine, shadow) in self._first.items() if twin else ():
            assert twin is not None
            variable: Variable = training.variables[name]
            ends = _wide(variable.array), _wide(twin.variables[name].array)
            how = motion(
                (machine.ravel(), ends[0].ravel()), (shadow.ravel(), ends[1].ravel()), steps)
            if how is not None and steps >= min(2, self.account.steps):
                layer = split_name(variable.layer)[0] if variable.trainable else ""
                self.account.moved(
                    layer, machine.shape, how, line=self._line(), steps=steps, is_state=False,
                    operation=f"update of {variable.name}", is_parameter=variable.trainable)


def _without_cycles(device: Device) -> Device:
    """A reference whose binary64 counts no cycles: then its rules are one call of a kernel each."""
    device.in_one_call = False  # which takes no binary64
    device.context(BINARY64).core.loops = None
    return device


class _Mapped(Sequence[Any]):
    """What a rule saved, each item mapped when it is read."""

    def __init__(self, saved: Sequence[Any], mapping: Callable[[Any], Any]) -> None:
        self._saved, self._mapping = saved, mapping

    def __len__(self) -> int:
        return len(self._saved)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(map(self._mapping, self._saved[index]))
        return self._mapping(self._saved[index])


def _wide(x: Array) -> Numbers:
    """A copy in binary64."""
    return np.array(x.carrier, np.float64)
