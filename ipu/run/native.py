"""Runs of trainings by `ipu.learn`: what a `Trainer` computes on, and tells.

A Trainer names its operations by layer and phase (`hidden`, `hidden/gradient`, `hidden/update`) and
numbers them by address (`ipu.learn.address`); the report has the layers and directions of every
other one. Of several replicas it is about the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import fpsim
from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from ipu.learn.address import Region
from ipu.learn.loss_scale import LossScale, Scaling, StaticLossScale
from ipu.learn.optim import Optimizer, Update
from ipu.learn.policy import FP32, LayerPolicies, PolicyLike
from ipu.learn.tensor import Rule
from ipu.learn.train import Trainer, device_partials
from ipu.learn.variables import Variable
from ipu.machine.device import Device
from ipu.machine.target import Target
from ipu.ops.functions import HOST
from ipu.run.account import fit, split_name
from ipu.run.changes import NONE, Changes
from ipu.run.format_policies import FormatPolicy
from ipu.run.lines import user_line
from ipu.run.lockstep import Lockstep
from ipu.run.options import RunOptions
from ipu.run.places import Place
from ipu.run.policies import PolicyArgument, formats_of
from ipu.run.restoring import (
    LAYER,
    NOTHING_RESTORED,
    PARAMETERS,
    UPDATE,
    PrecisionSite,
    Restoring,
)
from ipu.run.run import OperationEvent, Run, Step
from ipu.run.shadow import Shadow
from ipu.run.ways import Way

__all__ = ["NativeRun", "machine"]

_UNREACHED = (
    "A run is of the training that takes it: Trainer(model, optimizer, run=run), and then "
    "trainer.step(x, labels)"
)


#: Where cells are micro-batches: plain numbers, as each result asks.
_OF_BATCHES = int(Region.BATCH), int(Region.ACCUMULATE)
#: What batches are called as they come in.
_INPUT = "input"


class NativeRun(Run):
    """What `machine` gives: the run of one training, and its report.

    The `step` of `advise` takes the run of the trial: `step(run)` makes `Trainer(…, run=run)`,
    trains, and returns the losses or None. Initial values and random bits follow `run.seed`.

    >>> from ipu.learn import SGD, Trainer, dense
    >>> run = machine("fp16", sr=True, seed=3)
    >>> isinstance(run, NativeRun), str(run.way)
    (True, 'fp16+sr')
    >>> trainer = Trainer(lambda x: dense(x, 2, "only"), SGD(0.5), run=run)
    >>> loss = trainer.step(np.eye(2), np.array([0, 1]))
    >>> run.report()["steps"], run.status
    (1, FpSts(inv=False, div0=False, oflo=False))
    """

    def __init__(self, options: RunOptions) -> None:
        super().__init__(options)
        if any(isinstance(policy, FormatPolicy) for policy in self.policy.all):
            raise ValueError(
                f"policy={self.policy} has a format that layers of ipu.learn do not compute in; "
                "use f16, bf16, f32 or f8"
            )
        self.check_way(options.way)
        if not options.restoring.is_empty:
            self.policy = _restored(self.policy, options.restoring)
            self.formats = formats_of(self.policy)
        self.use(Device(
            options.machine, options.control, partials=device_partials(self.policy),
            **options.device_options,
        ))
        self._training: Trainer | None = None
        self._steps = 0
        #: The same training in binary64, where it is asked for.
        self._lockstep: Lockstep | None = None
        #: Updates of the step that runs, which may still be stopped.
        self._updates: list[Update] = []

    def check_way(self, way: Way) -> Way:
        """The way.

        Raises    ValueError for one that replaces constants: a network's are arguments of its rows.
        """
        if way.changes.constants:
            raise ValueError(
                f"way={str(way)!r} replaces a constant, which only fpsim torch can; change it in "
                "the network"
            )
        if way.changes.cache:
            raise ValueError(
                f"way={str(way)!r} has a cache of attention, which only fpsim torch knows; leave "
                "it out"
            )
        return way

    # What a Trainer asks ----------------------------------------------------------------------

    @property
    def seed(self) -> int:
        """Of the initial values and of the random bits."""
        return self.options.seed

    @property
    def checks_memory(self) -> bool:
        """Whether a step that one IPU cannot hold is refused."""
        return self.options.check_memory

    def check_free(self) -> None:
        """Refuse a second training.

        Raises    RuntimeError.
        """
        if self._training is not None:
            raise RuntimeError(
                "this run has a training already, whose steps number its random bits; make another "
                "run for the next one"
            )

    def optimizer_of(self, optimizer: Optimizer) -> Optimizer:
        """The optimiser with the changes of the run."""
        changes, names = self.options.changes, {field.name for field in fields(optimizer)}  # type: ignore[arg-type]
        wanted: dict[str, Any] = {}
        if changes.eps is not None and "epsilon" in names:
            wanted["epsilon"] = changes.eps
        if changes.wide_states:
            wanted["format"] = BINARY32
        changed: Optimizer = replace(optimizer, **wanted)  # type: ignore[type-var]
        return changed

    def loss_scale_of(self, scale: LossScale) -> LossScale:
        """The loss scale with the changes of the run."""
        factor = self.options.changes.loss_scale
        if factor == 1:
            return scale
        if isinstance(scale, Scaling):
            return replace(scale, factor=scale.value * factor)
        return StaticLossScale(factor)

    # What it tells ----------------------------------------------------------------------------

    def attach(self, training: Trainer) -> None:
        """This training computes and tells from now on."""
        self._training = training
        training.worker.note_loss = self.note_loss
        self.device.watch = self._note_result

    def shadow(self, steps: int = 1) -> Shadow:
        """Train in binary64 beside the next steps; it moves no bit (`ipu.run.lockstep`).

        Raises    TypeError for steps that are no whole number, ValueError for fewer than one;
                  RuntimeError in a training.
        """
        if self._training is not None:
            raise RuntimeError("shadow(steps) is asked for before a Trainer takes the run")
        account = super().shadow(steps)
        self._lockstep = Lockstep(account, self.user_line, self.seed)
        return account

    def user_line(self) -> str:
        """The line that calls a layer, an operation or a step of the training."""
        return user_line()

    @property
    def place(self) -> Place:
        """Where the operation that runs now stands."""
        number = self.device.clock.operation
        region, cell = number >> 36 & 15, number >> 20 & (1 << 16) - 1
        micro_batch = cell if region in _OF_BATCHES else 0
        return Place(number >> 40, micro_batch, 0, *split_name(self.device.counted_as))

    def begin_step(self, x: ArrayLike | Array, labels: Any) -> None:
        """A step of a batch begins."""
        assert self._training is not None
        if self._lockstep is not None and self._lockstep.is_on:
            self._lockstep.begin_step(self._training, x, labels)

    def _note_result(self, rule: Rule, array: Array) -> None:
        """A row of the table, or its gradient, has this result."""
        row, operands = rule.primitive, rule.operands
        kind = "exact" if row.unit == "none" else "host" if row.name in HOST else "machine"
        alter = self.options.restoring.altering(*split_name(self.device.counted_as))
        if kind != "exact" and alter is not None:
            np.copyto(array.carrier, alter(array.carrier, array.format))
        if self._lockstep is not None and self._lockstep.is_on:
            self._lockstep.note(self.device.counted_as, rule, array)
        self.account.add(kind, row.name, array.size)
        if kind != "exact" and self.is_watched:
            self.result(self.device.counted_as, row.name, array, operands)

    def note_loss(self, loss: Array) -> None:
        """A backward pass of a step is about to begin at this loss, without its scale."""
        assert self._training is not None
        if not self._steps and not self.account.summary()["parameters"]:
            self._note_parameters(self._training.variables.trainable)
        self._updates.clear()  # of a step that was stopped
        self.recorder.scale = self._training.loss_scale.value
        self.recorder.loss(self._training.steps, float(loss))
        if self._lockstep is not None:
            self._lockstep.note_loss(loss)

    def _note_parameters(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            layer, x = split_name(variable.layer)[0], variable.array
            self.account.parameter(layer, x.size)
            if self.is_counting:
                self.recorder.weights(layer, variable.name, x.format, x.carrier)

    def note_update(self, update: Update) -> None:
        """A variable is about to take a step."""
        self._updates.append(update)

    def end_step(self) -> None:
        """A step is over."""
        training = self._training
        assert training is not None
        if self._lockstep is not None and self._lockstep.is_on:
            self._lockstep.end_step(training, self._updates)
        rule = training.loss_scale.optimizer(training.optimizer)
        for variable, _, change, before, after, *_ in self._updates:
            self._note_constants(rule, rule.format or variable.dtype)
            self._show_update(variable, after)
            if not self.is_counting:
                continue
            term = np.negative(np.asarray(change.carrier, np.float32))
            self.recorder.update(
                split_name(variable.layer)[0], variable.name, after.format, before.carrier, term,
                after.carrier, variable.name,
            )
        self._updates.clear()
        self.step_done(training.steps - 1)
        self._steps += 1
        self.stop_if_enough(self._steps)

    def _show_update(self, variable: Variable, after: Array) -> None:
        """An update is an operation to those who watch: the variable's new value is its result."""
        assert self._training is not None
        layer = split_name(variable.layer)[0]
        place = Place(self._training.steps - 1, 0, 0, layer, "optimizer")
        for see in self._watchers:
            see(OperationEvent(f"update of {variable.name}", layer, "optimizer", place, after))

    def _note_constants(self, optimizer: Optimizer, fmt: Format) -> None:
        """Numbers of the optimiser that do not fit into the format in which it computes."""
        for value in optimizer.constants(optimizer.rate).values():
            change = fit(value, float(self.device.context(fmt).constant(value).carrier), fmt)
            if change:
                self.account.constant("optimizer", "optimizer", fmt, value, change)

    # Report -----------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """What a report has beyond that of every run.

        first_step    steps before, of a state that was restored, are in no count.
        """
        steps = 0 if self._training is None else self._training.steps
        if self._lockstep is not None and self._lockstep.is_on and self._training is not None:
            self._lockstep.finish(self._training)
        return {
            "steps": self._steps,
            "first_step": steps - self._steps,
            "unreached": "" if self.account.noted else _UNREACHED,
            "versions": {"fpsim": fpsim.__version__, "numpy": np.__version__},
            "assumed": "",
        }

    # Trials -----------------------------------------------------------------------------------

    def check_closed(self) -> None:
        """A native run is never open: each training has its own."""

    def again(
        self, way: Way, seed: int, restoring: Restoring = NOTHING_RESTORED
    ) -> NativeRun:
        """A run like this one, in another way and with another seed, that counts.

        restoring    sites that compute in binary32.
        """
        return NativeRun(replace(self.options.in_way(way, seed), restoring=restoring))

    def sites(self, report: Mapping[str, Any]) -> list[PrecisionSite]:
        """The input, the layers with parameters, their parameters alone, and the optimiser."""
        sites = [PrecisionSite(_INPUT, LAYER)]
        for layer in report["parameters"]:
            policy = self.policy.of(layer)
            if policy.compute != BINARY32:
                sites.append(PrecisionSite(layer, LAYER))
            if policy.param != BINARY32:
                sites.append(PrecisionSite(layer, PARAMETERS))
        if self.policy.default.param != BINARY32:
            sites.append(PrecisionSite("optimizer", UPDATE))
        return sites

    def tried(self, step: Step, seed: int) -> Sequence[float] | float | None:
        """What the program returns with this run, which has the seed."""
        return step(self)


def _restored(policy: PolicyLike, restoring: Restoring) -> LayerPolicies:
    """A policy with the layers of some sites in binary32."""
    layers = []
    for site in sorted(restoring.sites, key=lambda site: site.role != LAYER):
        if site.layer == _INPUT:
            continue
        if site.role == LAYER:
            layers.append((site.layer, FP32))
        elif site.role == PARAMETERS:
            layers.append((site.layer, replace(policy.of(site.layer), param=BINARY32)))
    default, rules = policy.default, (*layers, *getattr(policy, "layers", ()))
    if PrecisionSite(_INPUT, LAYER) in restoring.sites:
        default, rules = FP32, (*rules, ("*", policy.default))
    return LayerPolicies(default, rules, getattr(policy, "order", ()))


def machine(
    policy: PolicyArgument = "f32",
    *,
    sr: bool = False,
    seed: int = 0,
    count: bool = False,
    target: Target | str | None = None,
    nanoo: bool = False,
    traps: bool = False,
    preset: str = "window",
    f32_denormals: str = "flush",
    max_nan: str = "number",
    sums: str = "spread",
    changes: Changes = NONE,
    check_memory: bool = True,
) -> NativeRun:
    """A run for a training by `ipu.learn`: `Trainer(model, optimizer, run=machine("fp16"))`.

    policy    formats: a text as "p=f16,c=f16,part=f16", "f16", "fp32", a `Policy`, or a mapping
              from patterns of layers to these.
    sr        stochastic rounding; its bits depend on the seed and on addresses (docs/semantics.md
              §2).
    count     count flags, zeros and subnormals by layer and direction.
    target    as in `ipu.machine.Device`, as are preset, f32_denormals, max_nan and sums.
    nanoo     overflow gives NaN; else it saturates.
    traps     invalid operations, divisions by zero and overflow stop the step where they occur.
    changes   of optimiser and loss scale, as `Changes(loss_scale=1024.0, eps=1e-4)`.
    check_memory    a step that one IPU cannot hold is refused.

    Raises    ValueError for a policy that the target has no formats for; TypeError for switches
              that are neither True nor False.

    >>> from ipu.learn import SGD, Trainer, dense
    >>> run = machine("fp16", count=True)
    >>> trainer = Trainer(lambda x: dense(x, 2, "only"), SGD(0.5), run=run)
    >>> loss = trainer.step(np.eye(2), np.array([0, 1]))
    >>> sorted(run.report()["layers"]["only"])
    ['backward', 'forward', 'optimizer']
    """
    if not isinstance(sr, bool):
        raise TypeError(f"sr={sr!r} is neither True nor False")
    return NativeRun(RunOptions(
        policy=policy, sr=sr, seed=seed, count=count, target=target, ties="all", nanoo=nanoo,
        traps=traps, preset=preset, f32_denormals=f32_denormals, max_nan=max_nan, sums=sums,
        changes=changes, check_memory=check_memory,
    ))
