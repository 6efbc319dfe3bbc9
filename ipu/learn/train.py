"""The training step: the only place that knows its order.

cast to the compute format → forward → loss × scale → backward, for each mini-batch → accumulate →
finite? → unscale → optimiser → the next loss scale.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from inspect import signature
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fpsim.array import Array
from fpsim.records.formats import BINARY32, BINARY64, Format
from fpsim.state.processor import usual_arithmetic
from ipu.learn import losses
from ipu.learn.accumulate import Accumulation, Accumulator
from ipu.learn.address import Region
from ipu.learn.checkpoint import Number, Positioned, TrainingState, check_program, restore, take
from ipu.learn.loss_scale import LossScale, Statistic, as_loss_scale
from ipu.learn.memory import check_step, tape_bytes
from ipu.learn.mode import PendingUpdates, training
from ipu.learn.optim import (
    Observer,
    Optimizer,
    Pairs,
    Update,
    compute_contributions,
    compute_gradients,
)
from ipu.learn.policy import FP32, LayerPolicies, PolicyLike, find_policy
from ipu.learn.tensor import Tensor, Watch
from ipu.learn.training_run import TrainingRun
from ipu.learn.variables import Variable, Variables
from ipu.learn.worker import SCOPE, AllOrNone, Labels, Worker
from ipu.machine.control import POWER_ON, FpCtl
from ipu.machine.cost.planner import Planner
from ipu.machine.device import Device
from ipu.machine.target import MK2, Target
from ipu.ops.listing import Listing

__all__ = ["Trainer"]

Model = Callable[[Tensor], Tensor]
T = TypeVar("T")
#: Of a type of numpy's, which takes long to write it.
_name = lru_cache(maxsize=64)(str)
#: A program's name, then shape and type of each argument.
Signature = tuple[Hashable, ...]


class Gathered(NamedTuple):
    """What the backward passes of a step leave on a worker.

    pairs      scaled gradients with their variables.
    updates    of the moving statistics.
    """

    pairs: Pairs
    updates: PendingUpdates


class Trainer:
    """A model, its variables on a device, and the rules of a step.

    model        maps a batch to logits; creates its variables with `get_variable`.
    policy       formats of parameters, computation and sums; one for all layers or one for each;
                 or its name or string form, as "fp16".
    loss_scale   with its route back; a number is a static one.
    accumulation of the gradients of several mini-batches: a batch is then cut into that many.
                 Where it leaves the format open, the policy's accumulator is taken.
    seed         of the initial values and of the device's random bits.
    rounding_seed    of the random bits alone; None: `seed`.
    observe      called with every update of a variable.
    check_memory a step that one IPU cannot hold is refused.
    run          of `ipu.run.machine`: it brings policy, seed and device, and makes the report.
    target, random, preset, f32_denormals, max_nan, sums, conv_partials, planner, count,
    disable_sr_for_amp_vertices    as in `Device`; its partials are those of the policy.

    >>> from ipu.learn.nn import dense
    >>> from ipu.learn.optim import SGD
    >>> trainer = Trainer(lambda x: dense(x, 2, "only"), SGD(0.5))
    >>> x, labels = np.eye(2), np.array([0, 1])
    >>> [round(trainer.step(x, labels), 3) for _ in range(3)][-1] < 0.8
    True
    """

    def __init__(
        self,
        model: Model,
        optimizer: Optimizer,
        *,
        policy: PolicyLike | str = FP32,
        control: FpCtl = POWER_ON,
        loss_scale: LossScale | float | None = None,
        accumulation: Accumulation | None = None,
        seed: int = 0,
        rounding_seed: int | None = None,
        random: str = "philox",
        observe: Observer | None = None,
        target: Target | str = MK2,
        preset: str = "window",
        f32_denormals: str = "flush",
        max_nan: str = "number",
        sums: str = "spread",
        conv_partials: Format | str | None = None,
        planner: Planner | None = None,
        count: bool = False,
        disable_sr_for_amp_vertices: bool = False,
        check_memory: bool = True,
        run: TrainingRun | None = None,
    ) -> None:
        _check_parts(model, optimizer, accumulation, observe, run)
        options: dict[str, Any] = {
            "target": target, "control": control, "random": random, "preset": preset,
            "f32_denormals": f32_denormals, "max_nan": max_nan, "sums": sums,
            "conv_partials": conv_partials, "planner": planner, "count": count,
            "disable_sr_for_amp_vertices": disable_sr_for_amp_vertices,
        }
        if run is not None:
            _check_alone(policy=policy, seed=seed, rounding_seed=rounding_seed, **options)
            run.check_free()
            policy, seed, optimizer = run.policy, run.seed, run.optimizer_of(optimizer)
        self.model, self.optimizer, self.run = model, optimizer, run
        self.policy = find_policy(policy)
        scale = as_loss_scale(loss_scale)
        self.loss_scale = scale if run is None else run.loss_scale_of(scale)
        self.accumulation = accumulation and by_policy(accumulation, self.policy)
        #: Whether the last step's gradients were applied; a dynamic loss scale skips some.
        self.applied = True
        self.observe = observe if run is None else _observer(run, observe)
        #: Shapes and types of what steps and forward passes were called with, each with its calls:
        #: the machine would compile a program for each.
        self.signatures: Counter[Signature] = Counter()
        bits = seed if rounding_seed is None else rounding_seed
        new_device = partial(Device, seed=bits, partials=device_partials(self.policy), **options)
        #: The worker of the one replica; with several, one for each.
        self.workers = self._make_workers(new_device if run is None else _devices_of(run), seed)
        formats = self._update_formats()
        self.loss_scale.check(optimizer, saturates=self._saturates(), formats=formats)
        #: The operations of the first step, and of the training whose state was restored.
        self.program, self.restored = Listing(), ""
        self._limit_reported = False  # that the loss scale cannot grow
        #: Bytes that the first step's tape keeps; None where nobody checks the memory.
        self._tape: int | None = 0 if check_memory and (run is None or run.checks_memory) else None
        if run is not None:
            run.attach(self)

    def _make_workers(self, device: Callable[[], Device], seed: int) -> list[Worker]:
        return [Worker(device(), seed, self.policy)]

    @property
    def worker(self) -> Worker:
        """The first worker."""
        return self.workers[0]

    @property
    def device(self) -> Device:
        """Of the first worker."""
        return self.workers[0].device

    @property
    def variables(self) -> Variables:
        """Of the first worker."""
        return self.workers[0].variables

    @property
    def slots(self) -> dict[str, tuple[Array, ...]]:
        """The optimiser's memory of each variable of the first worker."""
        return self.worker.slots

    @property
    def steps(self) -> int:
        """Steps that were tried to their end; those that a dynamic loss scale skips count."""
        return self.worker.numbering.step

    def forward(self, x: ArrayLike | Array) -> Tensor:
        """Logits of a batch; the first call creates the variables.

        Raises    ValueError at the first call for a policy of layers that are not there. What a
                  call has created that fails is forgotten.
        """
        self._note_signature("forward", x)
        with self.worker.evaluating():
            return self._logits(x, self.worker)

    @usual_arithmetic
    def _logits(self, x: ArrayLike | Array, worker: Worker) -> Tensor:
        reuse = len(worker.variables) > 0
        if not reuse:
            self._find_order(x)
        inputs = worker.input(x)
        with worker.layers(reuse=reuse):
            logits = self.model(inputs)
            if not isinstance(logits, Tensor):
                raise TypeError(
                    f"model returned {type(logits).__name__}, not a Tensor; return the logits"
                )
            if not reuse:
                self.policy.check(worker.variables.layers)
            return logits

    def _find_order(self, x: ArrayLike | Array) -> None:
        """Patterns as last2 get their meaning: a forward pass aside, in binary32, has the order."""
        policy = self.policy
        if not isinstance(policy, LayerPolicies) or policy.order or not policy.needs_order:
            return
        aside = Worker(Device(), 0, FP32)
        with aside.layers(reuse=False):
            self.model(aside.input(x.to_numpy() if isinstance(x, Array) else x))
        layers = [v.layer.removeprefix(f"{SCOPE}/") for v in aside.variables.values()
                  if len(v.shape) > 1]
        self.policy = policy.in_order(layers)
        if self.run is not None:
            self.run.order(layers)
        for worker in self.workers:
            worker.policy = worker.variables.policy = self.policy

    def loss(self, x: ArrayLike | Array, labels: Labels) -> Tensor:
        """Mean cross-entropy of a batch plus the regularisers of the variables, unscaled."""
        worker = self.workers[0]
        with worker.evaluating():
            return worker.loss(self._logits(x, worker), labels)

    def scaled_gradients(
        self, loss: Tensor, statistic: Statistic | None = None
    ) -> list[tuple[Array, Variable]]:
        """Gradients of loss × scale, as the backward pass leaves them."""
        statistic = statistic or Statistic()
        with self.workers[0].evaluating(anew=False):
            pairs = self._scaled(compute_gradients, loss, statistic)
        statistic.collect(pairs)
        return pairs

    def _scaled(self, compute: Callable[..., T], loss: Tensor, statistic: Statistic) -> T:
        """compute(loss × scale), with the statistic watching."""
        with loss.device.naming("loss"):
            scaled = self.loss_scale.scale(loss)
        watch: Watch | None = statistic.watch
        if getattr(watch, "__func__", None) is Statistic.watch:
            watch = None  # it looks at nothing
        return compute(scaled, self.variables.trainable, watch)

    def step(self, x: ArrayLike | Array, labels: Labels) -> float:
        """One step of training; the loss of the batch before it.

        A step that a dynamic loss scale skips changes only the scale, slots that are kept scaled,
        status, counts and the number of the step.

        Raises    FloatingPointTrap where the control register arms one. After any error variables,
                  slots, loss scale and the number of the step are those of before.
        """
        self._note_signature("step", x, labels)
        self._find_order(x)
        scale, statistic = self.loss_scale, self.loss_scale.statistic(SCOPE)
        for worker in self.workers:
            worker.numbering.begin()
        with self.program.listing():
            loss, gathered = self._gradients(x, labels, statistic)
        if self.program.is_open:
            check_program(self.restored, self.program)
            self.program.is_open = False
        pairs = gathered[0].pairs
        following, applied = self._following(pairs, statistic), scale.applies(pairs)
        with AllOrNone([worker.variables for worker in self.workers]):
            slots = self._update(gathered, following, applied=applied)
        for worker, after in zip(self.workers, slots, strict=True):
            worker.slots = after
            worker.numbering.step += 1
        self.loss_scale, self.applied = following, applied
        if self.run is not None:
            self.run.end_step()
        return loss

    @usual_arithmetic
    def _gradients(
        self, x: ArrayLike | Array, labels: Labels, statistic: Statistic
    ) -> tuple[float, list[Gathered]]:
        """Loss and scaled gradients of a batch, at once or in mini-batches, of each worker."""
        numbering = self.workers[0].numbering
        with training() as updates, numbering.in_use():
            if self.accumulation is None:
                with numbering.cell(Region.BATCH):
                    loss = self.loss(x, labels)
                    self._note_tape(loss)
                    pairs = self.scaled_gradients(loss, statistic)
                numbering.index(self.variables.trainable)
                return float(loss.array), [Gathered(pairs, updates)]
            accumulator: Accumulator | None = None
            losses_seen = []
            for m, (inputs, targets) in enumerate(cut(x, labels, self.accumulation.count)):
                with numbering.cell(Region.BATCH, m):
                    loss = self.loss(inputs, targets)
                    self._note_tape(loss)
                    summands = self._scaled(compute_contributions, loss, statistic)
                statistic.collect([(g, v) for of_worker, v in summands for g in of_worker])
                if accumulator is None:
                    numbering.index(self.variables.trainable)
                    accumulator = self.accumulation.start(self.variables.trainable)
                accumulator = accumulator.add(summands)
                losses_seen.append(float(loss.array))
            assert accumulator is not None
            return float(np.mean(losses_seen)), [Gathered(accumulator.pairs, updates)]

    def _note_tape(self, loss: Tensor) -> None:
        """What waits for the backward pass of the first step."""
        if self._tape is not None and not self.steps:
            self._tape = tape_bytes(loss, self.variables.trainable)

    def _check_memory(self, pairs: Pairs, slots: dict[str, tuple[Array, ...]]) -> None:
        """Refuse a first step that one IPU cannot hold."""
        if self._tape is not None and not self.steps:
            device = self.device
            check_step(device.target, self._tape, device.ledger.temporary, pairs, slots)

    def _note_signature(self, program: str, *arguments: ArrayLike | Array) -> None:
        shapes = [
            (tuple(x.shape), x.format.name) if isinstance(x, Array)
            else (np.shape(x), _name(np.asarray(x).dtype)) for x in arguments
        ]
        self.signatures[program, *shapes] += 1

    def _update(
        self, gathered: Sequence[Gathered], following: LossScale, *, applied: bool
    ) -> list[dict[str, tuple[Array, ...]]]:
        """The slots of each worker after its variables have taken their step.

        Raises    OutOfMemoryError in a first step that does not fit the target.
        """
        slots = [
            worker.update(
                row.pairs, row.updates, self, following, applied=applied,
                observe=self.observe if worker is self.workers[0] else None,
            )
            for worker, row in zip(self.workers, gathered, strict=True)
        ]
        self._check_memory(gathered[0].pairs, slots[0])
        return slots

    def _following(self, pairs: Pairs, statistic: Statistic) -> LossScale:
        """The next loss scale; it does not grow where the optimiser would lose a constant."""
        scale = self.loss_scale
        following, reason = scale.successor(pairs, statistic).limited(
            scale, self.optimizer, self._update_formats()
        )
        if reason and not self._limit_reported:
            self._limit_reported = True
            warnings.warn(f"{reason}; this is warned of once", RuntimeWarning, stacklevel=3)
        return following

    def _update_formats(self) -> set[Format]:
        """Formats in which the optimiser's rules compute."""
        fmt = self.optimizer.format
        return {fmt} if fmt else {policy.param for policy in self.policy.all}

    def _saturates(self) -> bool:
        """Whether overflow in a format of the policy gives the largest finite value."""
        formats = {policy.activations for policy in self.policy.all}
        return any(self.device.context(f).core.settings.overflow == "saturate" for f in formats)

    def accuracy(self, x: ArrayLike | Array, labels: Labels) -> float:
        """Share of a batch that the model gets right."""
        return losses.accuracy(self.forward(x).array, labels)

    def built(self) -> dict[str, str]:
        """What reaches the bits of this kind of training alone, as text."""
        return {}

    def state(
        self, source: Positioned | None = None, progress: Mapping[str, Number] | None = None
    ) -> TrainingState:
        """Everything that the next step depends on, and the numbers of `progress`."""
        return take(self, source, progress)

    def restore(self, state: TrainingState, source: Positioned | None = None) -> None:
        """Go on from a state; see `ipu.learn.checkpoint.restore`."""
        restore(self, state, source)


def _check_alone(**arguments: Any) -> None:
    """Refuse arguments of a Trainer that its run brings along.

    Raises    TypeError.
    """
    usual = signature(Trainer).parameters
    names = [name for name, value in arguments.items() if value != usual[name].default]
    if names:
        raise TypeError(
            f"{names[0]}={arguments[names[0]]!r} beside run=, which brings policy, seed and device "
            "along; give it to ipu.run.machine, as far as that takes it, or leave run out"
        )


def device_partials(policy: PolicyLike) -> Format:
    """Partials of products where no layer says more; binary64 asks no unit."""
    partials = policy.default.partials
    return BINARY32 if partials == BINARY64 else partials


def _observer(run: TrainingRun, observe: Observer | None) -> Observer:
    """Who is told of updates: the run, after the user's own observer."""
    if observe is None:
        return run.note_update

    def both(update: Update) -> None:
        observe(update)
        run.note_update(update)

    return both


def _devices_of(run: TrainingRun) -> Callable[[], Device]:
    """A function that gives the run's device, then twins of it."""
    is_first = True

    def device() -> Device:
        nonlocal is_first
        first, is_first = is_first, False
        return run.device if first else run.device.twin()

    return device


def _check_parts(
    model: Any, optimizer: Any, accumulation: Any, observe: Any, run: Any
) -> None:
    """Refuse parts of a training that are of another kind, before anything is made."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"optimizer={optimizer!r} is not an optimiser; use one of ipu.learn.optim, for "
            "instance SGD(0.1)"
        )
    if not callable(model):
        raise TypeError(f"model={model!r} is not a function; give one from a Tensor to logits")
    if accumulation is not None and not isinstance(accumulation, Accumulation):
        raise TypeError(
            f"accumulation={accumulation!r} is not an Accumulation; use "
            "ipu.learn.accumulate.Accumulation(count, reduction), or None"
        )
    if observe is not None and not callable(observe):
        raise TypeError(f"observe={observe!r} is not a function; give one of an update, or None")
    if run is not None and not isinstance(run, TrainingRun):
        raise TypeError(
            f"run={run!r} is not a run of a training; use one of ipu.run.machine(…), or None"
        )


def by_policy(accumulation: Accumulation, policy: PolicyLike) -> Accumulation:
    """With the format that the policy of a variable's layer gives its accumulator, if one does."""
    if accumulation.dtype is not None or all(p.accumulator == p.param for p in policy.all):
        return accumulation

    def fmt(variable: Variable) -> Format:
        rule = policy.of(variable.layer.removeprefix(f"{SCOPE}/"))
        return variable.dtype if rule.accumulator == rule.param else rule.accumulator

    return replace(accumulation, dtype=fmt)


def cut(
    x: ArrayLike | Array, labels: Labels, count: int
) -> Iterator[tuple[ArrayLike | Array, Labels]]:
    """The batch in `count` mini-batches of equal size."""
    batch = x if isinstance(x, Array) else np.asarray(x)
    if not len(batch) or len(batch) % count:
        raise ValueError(
            f"a batch of {len(batch)} does not make {count} equal mini-batches; "
            f"use a multiple of {count}"
        )
    if len(labels) != len(batch):
        raise ValueError(f"{len(batch)} samples and {len(labels)} labels; give one label each")
    size = len(batch) // count
    for start in range(0, len(batch), size):
        yield batch[start : start + size], labels[start : start + size]
