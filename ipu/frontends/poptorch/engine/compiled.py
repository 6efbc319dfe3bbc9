"""A compiled model: its stages, its plan, and the loop over micro-batches that a call runs.

Source    PopART, pipeline.cc (order of programs), sgd.hpp (factors of loss and accumulators).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from ipu.frontends.poptorch.engine.gradients import MicroBatchGradients, ReplicaAdditions
from ipu.frontends.poptorch.engine.machine import PoptorchMachine
from ipu.frontends.poptorch.engine.metering import Meter
from ipu.frontends.poptorch.engine.micro_batch import MicroBatch
from ipu.frontends.poptorch.engine.processes import PoptorchProcesses, ProcessAdditions
from ipu.frontends.poptorch.engine.scaling import LossScaling
from ipu.frontends.poptorch.engine.stages import Stages, Tracer, plan_of
from ipu.frontends.poptorch.engine.update import Updater
from ipu.frontends.poptorch.enums import (
    HalfFloatCastingBehavior,
    MeanReductionStrategy,
    ReductionType,
)
from ipu.frontends.poptorch.options import Options
from ipu.frontends.poptorch.outputs import rebuild
from ipu.learn.accumulate import Reduction
from ipu.machine.assigned import Assigned
from ipu.machine.cost.planner import Planner
from ipu.plan.loop import MicroBatchLoop
from ipu.plan.schedule import Phase

__all__ = ["Compiled"]

#: Positional and named arguments of one micro-batch.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Compiled:
    """A model with its stages and plan.

    models     of each replica, as far as there are any; the first is the user's.
    updater    of a training; None: an inference.
    """

    def __init__(
        self, models: list[torch.nn.Module], options: Options, machine: PoptorchMachine,
        updater: Updater | None, processes: PoptorchProcesses | None = None,
    ) -> None:
        self.options, self.machine, self.updater = options, machine, updater
        #: Those that train the model together; None for this one alone.
        self.processes = processes
        self.models = models
        self._names = {id(p): name for name, p in models[0].named_parameters()}

    @property
    def training(self) -> bool:
        return self.updater is not None

    @property
    def halves(self) -> bool:
        """Whether operations on float16 and float32 tensors compute in float16."""
        casting = self.options.Precision.half_float_casting
        return bool(casting is not HalfFloatCastingBehavior.HalfUpcastToFloat)

    @property
    def all_replicas(self) -> int:
        """Replicas of all processes."""
        return self.plan.replicas if self.processes is None else self.processes.total

    # Compiling ------------------------------------------------------------------------------

    def compile(self, arguments: Arguments) -> None:
        """Find the stages with one micro-batch, and plan."""
        strategy = self.options.execution_strategy
        tracer = Tracer(strategy)
        with self.machine.running(), self._unchanged(), self.machine.without_trace():
            trace = MicroBatch(tracer, _nowhere, records=False, halves=self.halves)
            with self.machine.taking(0, 0), Assigned(self.machine.device, "program", "trace"):
                trace.forward(self._forward(0, arguments))
        self.stages = Stages(strategy, tracer.visits)
        self.plan = plan_of(
            self.stages, self.options, training=self.training,
            check_memory=self.machine.session.options.check_memory,
        )
        self._replicate()
        self.replicas = (
            ReplicaAdditions(self.machine, self.plan.replicas) if self.processes is None
            else ProcessAdditions(self.machine, self.processes, self.plan.order)
        )
        self.meter = Meter(self.plan, self.machine, self._names)
        self.scaling = None
        if self.updater is not None:
            self.machine.session.recorder.scale_option = "loss_scaling"
            self.scaling = LossScaling(
                self.updater.loss_scaling, automatic=self.options.Training.automatic_loss_scaling
            )
            self.updater.check(self.all_replicas)
            self.updater.processes = self.processes

    def start(self, *, fresh: bool) -> None:
        """All processes have compiled the same training; a fresh one has the same weights.

        Raises    JoinError, on every process, with what differs.
        """
        if self.processes is None:
            return
        assert self.scaling is not None
        assert self.updater is not None
        machine, groups = self.machine, self.updater.groups
        plain = [{k: v for k, v in sorted(g.items()) if k != "params"} for g in groups]
        lines = [
            *str(self.plan).splitlines(), f"deviceIterations: {self.options.device_iterations}",
            f"seed: {machine.seed}", f"stochastic rounding: {machine.device.control.esr}",
            f"loss scale: {self.scaling.value}",
            f"optimiser: {type(self.updater.optimizer).__name__}",
            *(f"its arguments: {arguments}" for arguments in plain),
        ]
        self.processes.start(self.models[0], lines, machine.session, fresh=fresh)
        for model in self.models[1:] if fresh else ():
            for buffer, first in zip(model.buffers(), self.models[0].buffers(), strict=True):
                buffer.copy_(first)

    def _replicate(self) -> None:
        """A copy of the model for each further replica: parameters are shared, buffers are not."""
        while len(self.models) < self.plan.replicas:
            memo = {id(p): p for p in self.models[0].parameters()}
            self.models.append(copy.deepcopy(self.models[0], memo))

    def _forward(self, replica: int, arguments: Arguments) -> Callable[[], Any]:
        model, (args, kwargs) = self.models[replica], arguments
        return lambda: model(*args, **kwargs)

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Buffers are as before afterwards."""
        copies = self._buffers()
        try:
            yield
        finally:
            _restore(copies)

    def _buffers(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(b, b.detach().clone()) for model in self.models for b in model.buffers()]

    # Calling --------------------------------------------------------------------------------

    def call(self, batches: Sequence[Arguments]) -> list[Any]:
        """The outputs of all micro-batches, in the order of their numbers."""
        share = self.plan.count * self.plan.replicas
        if self.updater is not None:
            self.updater.check_arguments()
        outputs: list[Any] = []
        with self.machine.running():
            for start in range(0, len(batches), share):
                copies = self._buffers()
                try:
                    outputs += self._round(batches[start : start + share])
                except BaseException:
                    _restore(copies)
                    raise
        return outputs

    def _round(self, batches: Sequence[Arguments]) -> list[Any]:
        """One update, or one batch of an inference for every replica and micro-batch."""
        outside = nullcontext() if self.training else self.machine.without_trace()
        work = _Round(self, batches)
        with outside:
            work.loop.run(self.plan.replicas, work.run)
        work.end()
        return work.outputs


def _nowhere(is_backward: bool, stage: int) -> None:
    """A trace is of no program."""


class _Round:
    """The micro-batches between two updates."""

    def __init__(self, compiled: Compiled, batches: Sequence[Arguments]) -> None:
        self.compiled, self.batches = compiled, batches
        self.outputs: list[Any] = [None] * len(batches)
        self._is_measured = compiled.meter.figures is None
        machine, plan = compiled.machine, compiled.plan
        self.loop = MicroBatchLoop(
            plan, [machine.device], machine.first_replica, measures=self._is_measured,
            planners={
                ipu: Planner.of_share(share)
                for ipu, share in compiled.options.available_memory_proportion.items()
            },
        )
        updater, options = compiled.updater, compiled.options.Training
        self._parameters = [] if updater is None else updater.parameters
        if updater is None:
            return
        running = _is_running(options, updater.types, plan.count)
        mean = options.accumulation_and_replication_reduction_type is ReductionType.Mean
        assert compiled.scaling is not None
        scale = compiled.scaling.value
        self._seed = scale / compiled.all_replicas if mean else scale
        self._unscale = 1 / (scale * plan.count) if mean and not running else 1 / scale
        how = Reduction.RUNNING_MEAN if running else Reduction.SUM
        self._gradients = MicroBatchGradients(
            machine, plan.count, plan.replicas, how, updater.types
        )
        compiled.scaling.begin()

    def run(self, m: int, replica: int) -> None:
        """A micro-batch of a replica; recomputation repeats bits, so the tape is kept instead."""
        compiled, number = self.compiled, m * self.compiled.plan.replicas + replica
        is_first = self._is_measured and m == replica == 0
        tape = compiled.meter.tape() if is_first else None
        micro_batch = MicroBatch(
            compiled.stages, self._begin, records=compiled.training or is_first,
            halves=compiled.halves, tape=tape,
        )
        with compiled.machine.taking(m, replica):
            arguments = self.batches[number]
            outputs = micro_batch.forward(compiled._forward(replica, arguments))
            self.loop.end()
            self.outputs[number] = rebuild(outputs, lambda x: x.detach())
            if tape is not None:
                loss = micro_batch.losses.final if compiled.training else None
                compiled.meter.forward_done(
                    tape, loss, arguments, outputs, compiled.updater, self.loop
                )
            if compiled.training:
                self._train(micro_batch, m, replica)

    def _begin(self, is_backward: bool, stage: int) -> None:
        self.loop.mark(Phase.BACKWARD if is_backward else Phase.FORWARD, stage)

    def _train(self, micro_batch: MicroBatch, m: int, replica: int) -> None:
        """The backward pass, whose gradients are accumulated."""
        compiled = self.compiled
        updater, scaling = compiled.updater, compiled.scaling
        assert updater is not None
        assert scaling is not None
        stage_of = compiled.meter.stage_of
        with compiled.machine.session.changer.leaving_scale():
            slopes = micro_batch.backward(
                self._loss_gradient, self._parameters, scaling.watch(compiled.machine)
            )
        for parameter, gradient in sorted(slopes, key=lambda slope: -stage_of(slope[0])):
            self._begin(True, stage_of(parameter))
            start, share = updater.combined(parameter, self._unscale)
            self._gradients.add(
                replica, m, compiled._names.get(id(parameter), "parameter"), parameter, gradient,
                start=start, share=share,
            )

    def _loss_gradient(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss scale, over R for a mean: binary32, or rounded into a float16 loss's format."""
        if not loss.requires_grad:
            raise RuntimeError(
                "the loss depends on no parameter that requires a gradient; freeze fewer of them"
            )
        machine, scaling = self.compiled.machine, self.compiled.scaling
        assert scaling is not None
        machine.session.recorder.scale = scaling.value
        if loss.numel() == 1:
            machine.session.recorder.loss(machine.session.step, float(loss.detach()))
        return machine.session.roots.gradient(loss, self._seed)

    def end(self) -> None:
        """All micro-batches have run; in a training all parameters take their step."""
        compiled, updater = self.compiled, self.compiled.updater
        if self._is_measured:
            compiled.meter.check(self.loop, updater)
        if updater is not None:
            self._update(updater)
        if self._is_measured:
            compiled.meter.round_done(self.loop, updater)
        if updater is not None:
            compiled.machine.layers.end_step()

    def _update(self, updater: Updater) -> None:
        compiled = self.compiled
        assert compiled.scaling is not None
        with compiled.meter.updating() if self._is_measured else nullcontext():
            updater.apply(self._gradients, compiled.replicas, compiled.plan.order, self._unscale)
        compiled.scaling.end(None if compiled.processes is None else compiled.processes.add)


def _is_running(options: Any, types: dict[int, torch.dtype], count: int) -> bool:
    """Whether accumulators hold the mean so far: chosen, or by default of float16 ones."""
    if options.accumulation_and_replication_reduction_type is not ReductionType.Mean or count == 1:
        return False
    if options.is_strategy_chosen:
        strategy = options.meanAccumulationAndReplicationReductionStrategy
        return bool(strategy is MeanReductionStrategy.Running)
    return torch.float16 in types.values()


def _restore(copies: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.no_grad():
        for buffer, values in copies:
            buffer.copy_(values)
