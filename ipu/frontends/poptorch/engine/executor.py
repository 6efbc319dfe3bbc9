"""The executor: one call of a model, program after program of its plan.

Source    PopART, pipeline.cc (order of programs), sgd.hpp (factors of loss and accumulators).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from ipu.frontends.poptorch.engine.flight import Flight
from ipu.frontends.poptorch.engine.gradients import Gradients, Replicas
from ipu.frontends.poptorch.engine.machine import Machine, Turn
from ipu.frontends.poptorch.engine.metering import Meter
from ipu.frontends.poptorch.engine.processes import Processes, ReplicasOfProcesses
from ipu.frontends.poptorch.engine.scaling import LossScaling
from ipu.frontends.poptorch.engine.staging import Staging, Tracer, plan_of
from ipu.frontends.poptorch.engine.update import Updater
from ipu.frontends.poptorch.enums import (
    HalfFloatCastingBehavior,
    MeanReductionStrategy,
    ReductionType,
)
from ipu.frontends.poptorch.options import Options
from ipu.frontends.poptorch.outputs import rebuild
from ipu.learn.accumulate import Reduction
from ipu.plan.schedule import Phase, Program

__all__ = ["Executor"]

#: Positional and named arguments of one micro-batch.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Executor:
    """A model with its stages and plan.

    models     of each replica, as far as there are any; the first is the user's.
    updater    of a training; None: an inference.
    """

    def __init__(
        self, models: list[torch.nn.Module], options: Options, machine: Machine,
        updater: Updater | None, processes: Processes | None = None,
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
        chosen = self.options.Precision.half_float_casting
        return bool(chosen is HalfFloatCastingBehavior.FloatDowncastToHalf)

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
            turn = self.machine.turn(0, 0)
            flight = Flight(
                self._forward(0, arguments), tracer, [], self.machine.mode, halves=self.halves
            )
            try:
                with self.machine.taking(turn, "trace"):
                    flight.forward(0)
            finally:
                flight.close()
        self.staging = Staging(strategy, tracer.visits)
        self.plan = plan_of(self.staging, self.options, training=self.training)
        self._replicate()
        self.replicas = (
            Replicas(self.machine, self.plan.replicas) if self.processes is None
            else ReplicasOfProcesses(self.machine, self.processes, self.plan.order)
        )
        self.meter = Meter(self.plan, self.machine)
        self.scaling = None
        if self.updater is not None:
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
        kept = self._buffers()
        try:
            yield
        finally:
            _restore(kept)

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
                kept = self._buffers()
                try:
                    outputs += self._round(batches[start : start + share])
                except BaseException:
                    _restore(kept)
                    raise
        return outputs

    def _round(self, batches: Sequence[Arguments]) -> list[Any]:
        """One update, or one batch of an inference for every replica and micro-batch."""
        outside = nullcontext() if self.training else self.machine.without_trace()
        work = _Round(self, batches)
        with outside:
            try:
                for program in self.plan.programs:
                    for replica in range(self.plan.replicas):
                        work.run(program, replica)
            finally:
                work.close()
        if self.updater is not None:
            work.update(self.updater)
        return work.outputs


class _Round:
    """The flights between two updates."""

    def __init__(self, executor: Executor, batches: Sequence[Arguments]) -> None:
        self.executor, self.batches = executor, batches
        self.outputs: list[Any] = [None] * len(batches)
        self._flights: dict[tuple[int, int], tuple[Flight, Turn]] = {}
        self._parameters: list[torch.Tensor] = []
        updater, plan, options = executor.updater, executor.plan, executor.options.Training
        if updater is None:
            return
        self._parameters = updater.parameters
        running = _is_running(options, updater.types, plan.count)
        mean = options.accumulation_and_replication_reduction_type is ReductionType.Mean
        assert executor.scaling is not None
        scale = executor.scaling.value
        self._seed = scale / executor.all_replicas if mean else scale
        self._unscale = 1 / (scale * plan.count) if mean and not running else 1 / scale
        how = Reduction.RUNNING_MEAN if running else Reduction.SUM
        self._gradients = Gradients(executor.machine, plan.count, plan.replicas, how, updater.types)
        executor.scaling.begin()

    def close(self) -> None:
        """End all strands."""
        for flight, _ in self._flights.values():
            flight.close()
        self._flights.clear()

    def run(self, program: Program, replica: int) -> None:
        """One program of the plan; recomputation repeats bits, so the tape is kept instead."""
        run = {Phase.FORWARD: self._forward, Phase.BACKWARD: self._backward}.get(program.phase)
        if run is None:
            return
        key = program.micro_batch, replica
        if key not in self._flights:
            self._flights[key] = self._start(*key)
        flight, turn = self._flights[key]
        number = self.executor.machine.first_replica + replica
        where = (
            f"replica {number}, IPU {program.ipu}, stage {program.stage}, "
            f"micro-batch {program.micro_batch}, slot {program.slot}"
        )
        is_metered = key == (0, 0)
        meter = self.executor.meter.program(program) if is_metered else nullcontext()
        with self.executor.machine.taking(turn, where), meter:
            run(program, replica, flight)
        if is_metered and program.phase is Phase.FORWARD and self.executor.plan.is_last(program):
            self.executor.meter.forward_done(flight)

    def _start(self, micro_batch: int, replica: int) -> tuple[Flight, Turn]:
        executor = self.executor
        number = micro_batch * executor.plan.replicas + replica
        assert executor.scaling is not None or not self._parameters
        watch = executor.scaling.watch(executor.machine) if executor.scaling else None
        flight = Flight(
            executor._forward(replica, self.batches[number]), executor.staging, self._parameters,
            executor.machine.mode, watch, self.batches[number],
            records=bool(self._parameters) or executor.meter.figures is None,
            halves=executor.halves,
        )
        return flight, executor.machine.turn(micro_batch, replica)

    def _forward(self, program: Program, replica: int, flight: Flight) -> None:
        flight.forward(program.stage)
        plan = self.executor.plan
        if plan.is_last(program):
            number = program.micro_batch * plan.replicas + replica
            self.outputs[number] = rebuild(flight.outputs, lambda x: x.detach())

    def _backward(self, program: Program, replica: int, flight: Flight) -> None:
        executor, m = self.executor, program.micro_batch
        updater = executor.updater
        assert updater is not None
        seed = self._loss_gradient(flight) if executor.plan.is_last(program) else None
        for parameter, gradient in flight.backward(program.stage, seed):
            start, share = updater.combined(parameter, self._unscale)
            self._gradients.add(
                replica, m, executor._names.get(id(parameter), "parameter"), parameter, gradient,
                start=start, share=share,
            )
        if program.stage == 0:
            flight.close()

    def _loss_gradient(self, flight: Flight) -> torch.Tensor:
        """The loss scale, over R for a mean: binary32, or rounded into a float16 loss's format."""
        loss = flight.losses.final
        if not loss.requires_grad:
            raise RuntimeError(
                "the loss depends on no parameter that requires a gradient; freeze fewer of them"
            )
        machine, scaling = self.executor.machine, self.executor.scaling
        assert scaling is not None
        machine.session.recorder.scale = scaling.value
        if loss.numel() == 1:
            machine.session.recorder.loss(machine.session.step, float(loss.detach()))
        return machine.session.roots.gradient(loss, self._seed)

    def update(self, updater: Updater) -> None:
        """All parameters take their step."""
        executor = self.executor
        with executor.meter.updating():
            updater.apply(self._gradients, executor.replicas, executor.plan.order, self._unscale)
        assert executor.scaling is not None
        executor.scaling.end(None if executor.processes is None else executor.processes.add)
        executor.meter.updated(updater)
        executor.machine.layers.end_step()


def _is_running(options: Any, types: dict[int, torch.dtype], count: int) -> bool:
    """Whether accumulators hold the mean so far: chosen, or by default of float16 ones."""
    if options.accumulation_and_replication_reduction_type is not ReductionType.Mean or count == 1:
        return False
    if options.is_strategy_chosen:
        strategy = options.meanAccumulationAndReplicationReductionStrategy
        return bool(strategy is MeanReductionStrategy.Running)
    return torch.float16 in types.values()


def _restore(kept: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.no_grad():
        for buffer, values in kept:
            buffer.copy_(values)
