"""Pipeline: one replica's micro-batches, each forward through all stages and then backward.

Every program computes in the cell of its micro-batch (`ipu.learn.address`), so the cut into stages
and recomputation reach no bit, and the schedule is not acted out (`ipu.plan.loop`). A variable's
gradient of a micro-batch is accumulated when the earliest stage that uses it has run backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from numpy.typing import ArrayLike

from fpsim.array import Array
from ipu import ops
from ipu.learn.accumulate import Accumulation, Accumulator
from ipu.learn.address import Region
from ipu.learn.loss_scale import LossScale, Statistic
from ipu.learn.mode import PendingUpdates, training
from ipu.learn.tensor import Tensor, nodes
from ipu.learn.train import Gathered
from ipu.learn.variables import Variable
from ipu.learn.worker import Labels, Worker
from ipu.plan.loop import MicroBatchLoop
from ipu.plan.plan import Plan
from ipu.plan.schedule import Phase, Program
from ipu.plan.stage import Flight, check_arguments, used_variables

__all__ = ["Batch", "Pipeline"]

#: Told of every forward program of the first micro-batch, when it is over.
Note = Callable[[Program, Flight], None]


class Batch(NamedTuple):
    """One micro-batch of one replica."""

    inputs: ArrayLike | Array
    labels: Labels


class Pipeline:
    """The programs of one step of one replica.

    worker       its variables and device; it has built the model if it has any variables.
    scale        of the loss; statistic: what it counts in this step.
    accumulation of the plan, with the formats that the policy gives its accumulators.
    note         for the account.
    """

    def __init__(
        self, plan: Plan, worker: Worker, batches: Sequence[Batch], scale: LossScale,
        statistic: Statistic, accumulation: Accumulation, note: Note | None = None,
    ) -> None:
        self.plan = plan
        self.worker = worker
        self.batches = batches
        self.accumulation = accumulation
        self.updates = PendingUpdates()
        #: Loss of each micro-batch, unscaled.
        self.losses: dict[int, Array] = {}
        self._scale, self._statistic, self._note = scale, statistic, note
        self._new = not worker.variables
        self._flights: dict[tuple[int, int], Flight] = {}
        #: Gradients of the outputs of a position, from the position behind it.
        self._seeds: dict[tuple[int, int], dict[int, Array]] = {}
        self._logits: Tensor | None = None
        self._summands: dict[tuple[str, int], list[Array]] = {}
        #: Parts of gradients that are added in the order of the schedule, when all have come.
        self._parts: dict[Program, list[tuple[list[Array], Variable]]] = {}
        self._accumulators: dict[str, Accumulator] = {}
        #: Trainable variables of each entry, and the first entry that uses each.
        self._used: dict[tuple[int, int], list[str]] = {}
        self._first_use: dict[str, tuple[int, int]] = {}

    # Programs -------------------------------------------------------------------------------

    def run(self, micro_batch: int, loop: MicroBatchLoop) -> None:
        """A micro-batch forward through all stages, and backward through all."""
        with training(self.updates), self.worker.numbering.in_use():
            for program in loop.programs(micro_batch):
                run = {
                    Phase.FORWARD: self._forward, Phase.RECOMPUTE: self._recompute,
                    Phase.BACKWARD: self._backward,
                }.get(program.phase)
                if run is not None:  # transfers compute nothing
                    loop.mark(program.phase, program.stage, program.branch)
                    run(program)

    def _cell(self, program: Program, again: int | None = None) -> AbstractContextManager[None]:
        return self.worker.numbering.cell(Region.BATCH, program.micro_batch, again=again)

    def _forward(self, program: Program) -> None:
        stage, branch, m = program.stage, program.branch, program.micro_batch
        if stage == branch == 0:
            with self._cell(program):
                inputs = self.worker.input(self.batches[m].inputs)
            self._flights[0, m] = Flight([inputs])
        flight = self._flights[stage, m]
        if m == 0:
            check_arguments(self.plan.runs[stage, branch], stage, flight.arguments)
        flight.entered[branch] = self.worker.numbering.position(Region.BATCH, m)
        with self._cell(program):
            self._run(program, flight, reuse=m > 0 or not self._new)
            if self.plan.is_last(program) and self.plan.ends_position(program):
                self._finish(program, flight)
        if m == 0:
            self._note_use(program, flight)
            if self._note is not None:
                self._note(program, flight)
        if self.plan.ends_position(program) and not self.plan.is_last(program):
            self._hand_over(program, flight)

    def _run(self, program: Program, flight: Flight, *, reuse: bool) -> None:
        with self.worker.layers(reuse=reuse):
            flight.forward(self.plan.runs[program.stage, program.branch], program.branch)

    def _finish(self, program: Program, flight: Flight) -> None:
        """The loss takes the place of the logits among the outputs."""
        m, values, worker = program.micro_batch, flight.values, self.worker
        if len(values) != 1 or not isinstance(values[0], Tensor):
            raise ValueError(
                f"the last stage returned {len(values)} values; return the logits alone, one tensor"
            )
        if m == 0 and self._new:
            worker.policy.check(worker.variables.layers)
        loss = worker.loss(values[0], self.batches[m].labels)
        self._logits = values[0]
        flight.take(program.branch, (loss,))
        self.losses[m] = loss.array

    def _note_use(self, program: Program, flight: Flight) -> None:
        """Which variables an entry uses; regularisers, which are of the loss, use none."""
        key = program.stage, program.branch
        outputs = (self._logits,) if self.plan.is_last(program) else flight.outputs[program.branch]
        self._used[key] = [variable.name for variable in used_variables(outputs)]
        for name in self._used[key]:
            self._first_use.setdefault(name, key)
        tensors = [value for value in outputs if isinstance(value, Tensor)]
        if any(n.primitive is ops.recomputation_checkpoint for n in nodes(*tensors)):
            self.plan.check_checkpoints()
        if len(self._used) == len(self.plan.runs):
            self.plan.check_variables([self._used[key] for key in self.plan.runs])
            self.worker.numbering.index(self.worker.variables.trainable)

    def _hand_over(self, program: Program, flight: Flight) -> None:
        """The next position receives the outputs; recomputation brings their tape back later."""
        m = program.micro_batch
        self._flights[program.stage + 1, m] = Flight(flight.values)
        if self.plan.recomputation:
            for branch in list(flight.outputs):
                flight.drop(branch)

    def _recompute(self, program: Program) -> None:
        flight = self._flights[program.stage, program.micro_batch]
        again = flight.entered[program.branch]
        self.updates.repeating = True
        try:
            with self.worker.device.recomputing(), self._cell(program, again):
                self._run(program, flight, reuse=True)
        finally:
            self.updates.repeating = False

    def _backward(self, program: Program) -> None:
        stage, branch, m = program.stage, program.branch, program.micro_batch
        flight, variables = self._flights[stage, m], self.worker.variables.trainable
        with self._cell(program):
            seeds = self._seed_loss(flight) if self.plan.is_last(program) else self._seeds[stage, m]
            if self.plan.ends_position(program):
                flight.begin_backward(seeds)
            summands = flight.backward(branch, seeds, variables, self._statistic.watch)
            self._collect(program, zip(summands, variables, strict=True))
        if branch == 0:
            del self._flights[stage, m]
            self._seeds.pop((stage, m), None)
            if stage:
                self._seeds[stage - 1, m] = flight.gradients

    def _seed_loss(self, flight: Flight) -> dict[int, Array]:
        """The loss is scaled; its gradient is 1."""
        device = self.worker.device
        ((branch, (loss,)),) = flight.outputs.items()
        with device.naming("loss"):
            scaled = self._scale.scale(loss)
        flight.take(branch, (scaled,))
        return {0: device.context(scaled.dtype).constant(1.0)}

    @property
    def used(self) -> dict[tuple[int, int], list[Variable]]:
        """The trainable variables of each entry of the plan, by stage and branch."""
        variables = self.worker.variables
        return {key: [variables[name] for name in names] for key, names in self._used.items()}

    # Gradients ------------------------------------------------------------------------------

    def _collect(self, program: Program, pairs: Iterable[tuple[list[Array], Variable]]) -> None:
        """Accumulate the gradients that are complete for this micro-batch."""
        m, here = program.micro_batch, (program.stage, program.branch)
        for summands, variable in pairs:
            key = variable.name, m
            if self.plan.shared_gradients == "stage":
                if summands:
                    self._parts.setdefault(program, []).append((summands, variable))
                continue
            if summands:
                self._summands.setdefault(key, []).extend(summands)
            if self._first_use.get(variable.name) == here:
                self._add(self._summands.pop(key, []), variable, None)

    def _add(self, summands: list[Array], variable: Variable, more: int | None) -> None:
        if not summands:
            raise ValueError(f"the loss does not depend on {variable.name}; leave it out")
        self._statistic.collect([(gradient, variable) for gradient in summands])
        accumulator = self._accumulators.get(variable.name)
        if accumulator is None:
            accumulator = self.accumulation.start([variable])
        self._accumulators[variable.name] = accumulator.add([(summands, variable)], more)

    def gathered(self) -> Gathered:
        """The accumulated gradients of all variables, after the last program.

        Raises    ValueError for a variable that the loss does not depend on.
        """
        with self.worker.numbering.in_use():
            for program in self.plan.programs if self._parts else ():
                for summands, variable in self._parts.pop(program, ()):
                    self._add(summands, variable, program.micro_batch)
        pairs = []
        for variable in self.worker.variables.trainable:
            if variable.name not in self._accumulators:
                raise ValueError(f"the loss does not depend on {variable.name}; leave it out")
            pairs += self._accumulators[variable.name].pairs
        return Gathered(pairs, self.updates)
