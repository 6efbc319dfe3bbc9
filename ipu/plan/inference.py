"""Inference by a plan: forward stages of many micro-batches, in the slots of its schedule.

Every replica takes micro-batches of its own, with the variables of a trainer; outputs come in the
order of the micro-batches, to an outfeed as they are computed if one is passed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fpsim.array import Array
from ipu.learn.address import Region
from ipu.learn.tensor import Tensor
from ipu.learn.worker import Worker
from ipu.plan.plan import Plan
from ipu.plan.schedule import Phase, Program
from ipu.plan.stage import Flight
from ipu.plan.trainer import Trainer

__all__ = ["infer"]


def infer(
    trainer: Trainer, plan: Plan, x: ArrayLike | Array,
    enqueue: Callable[[tuple[Any, ...]], object] | None = None,
) -> tuple[Array, ...]:
    """The last stages' outputs for a batch of G·R micro-batches, G and R of the plan.

    plan      with training=False; its stages use variables that the trainer has.
    enqueue   called with the outputs of each micro-batch in order, for instance an outfeed's;
              with R replicas each output has R in front of its shape.

    Shapes    x (B·G·R, …): each output (G, B, …), with R > 1 (G, R, B, …).
    Rounding  as in a forward pass without a plan; micro-batch m draws in cell m of EVALUATE.
    Raises    ValueError for a plan that trains, or a batch that G·R does not divide; RuntimeError
              before the trainer has variables.

    >>> from ipu.learn.nn import dense
    >>> from ipu.learn.optim import SGD
    >>> stages = [lambda x: dense(x, 4, "first"), lambda x: dense(x, 2, "second")]
    >>> trainer = Trainer(SGD(0.1), plan=Plan(stages, count=4))
    >>> logits = trainer.forward(np.eye(8))
    >>> (outputs,) = infer(trainer, Plan(stages, count=4, training=False), np.eye(8))
    >>> outputs.shape, np.array_equal(outputs.values.reshape(8, 2), logits.array.values)
    ((4, 2, 2), True)
    """
    if plan.training:
        raise ValueError("plan trains; use Plan(…, training=False) for inference")
    if plan.replicas > len(trainer.workers):
        raise ValueError(
            f"plan has {plan.replicas} replicas, the trainer {len(trainer.workers)}; use as many"
        )
    if not trainer.variables:
        raise RuntimeError("the model has no variables yet; call trainer.forward(batch) once first")
    batch = x if isinstance(x, Array) else np.asarray(x)
    size, replicas = plan.micro_batch(len(batch)), plan.replicas
    pieces = [batch[start : start + size] for start in range(0, len(batch), size)]
    runs = [
        _Run(plan, worker, pieces[r::replicas])
        for r, worker in enumerate(trainer.workers[:replicas])
    ]
    gathered: list[tuple[Array, ...]] = []
    for program in plan.programs:
        for run in runs:
            run.run(program)
        done = [run.outputs.get(program.micro_batch) for run in runs]
        if program.micro_batch == len(gathered) and all(own is not None for own in done):
            outputs = [own for own in done if own is not None]
            gathered.append(_stacked(outputs) if replicas > 1 else outputs[0])
            if enqueue is not None:
                enqueue(gathered[-1])
    return _stacked(gathered)


def _stacked(rows: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Outputs of equal shapes along a new first axis, on the device of the first."""
    return tuple(
        Array(np.stack([array.carrier for array in column]), column[0].context)
        for column in zip(*rows, strict=True)
    )


class _Run:
    """The forward programs of one replica."""

    def __init__(self, plan: Plan, worker: Worker, batches: list[Any]) -> None:
        self.plan, self.worker, self.batches = plan, worker, batches
        self.outputs: dict[int, tuple[Array, ...]] = {}
        self._flights: dict[tuple[int, int], Flight] = {}

    def run(self, program: Program) -> None:
        if program.phase is not Phase.FORWARD:
            return
        stage, branch, m = program.stage, program.branch, program.micro_batch
        numbering = self.worker.numbering
        if stage == branch == 0:
            numbering.restart(Region.EVALUATE, m)
        with numbering.cell(Region.EVALUATE, m), self.worker.layers(reuse=True):
            if stage == branch == 0:
                self._flights[0, m] = Flight([self.worker.input(self.batches[m])])
            flight = self._flights[stage, m]
            flight.forward(self.plan.runs[stage, branch], branch)
        if not self.plan.ends_position(program):
            return
        values = flight.values
        del self._flights[stage, m]
        if self.plan.is_last(program):
            self.outputs[m] = tuple(v.array for v in values if isinstance(v, Tensor))
        else:
            self._flights[stage + 1, m] = Flight(values)
