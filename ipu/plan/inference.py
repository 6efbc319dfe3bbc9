"""Inference by a plan: forward stages of many micro-batches.

Every replica takes micro-batches of its own, with the variables of a trainer; outputs come in the
order of the micro-batches, to an outfeed as they are computed if one is passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fpsim.array import Array
from ipu.learn.address import Region
from ipu.learn.tensor import Tensor
from ipu.learn.worker import Worker
from ipu.plan.loop import MicroBatchLoop
from ipu.plan.plan import Plan
from ipu.plan.schedule import Phase
from ipu.plan.stage import Flight
from ipu.plan.trainer import PlanTrainer

__all__ = ["infer"]


def infer(
    trainer: PlanTrainer, plan: Plan, x: ArrayLike | Array,
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
    >>> trainer = PlanTrainer(SGD(0.1), plan=Plan(stages, count=4))
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
        _Forward(plan, worker, pieces[r::replicas])
        for r, worker in enumerate(trainer.workers[:replicas])
    ]
    loop = MicroBatchLoop(plan, [run.worker.device for run in runs])
    gathered: list[tuple[Array, ...]] = []
    outputs: list[tuple[Array, ...]] = []

    def run(m: int, replica: int) -> None:
        outputs.append(runs[replica].run(m, loop))
        if len(outputs) == replicas:
            gathered.append(_stacked(outputs) if replicas > 1 else outputs[0])
            outputs.clear()
            if enqueue is not None:
                enqueue(gathered[-1])

    loop.run(replicas, run)
    return _stacked(gathered)


def _stacked(rows: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Outputs of equal shapes along a new first axis, on the device of the first."""
    return tuple(
        Array(np.stack([array.carrier for array in column]), column[0].context)
        for column in zip(*rows, strict=True)
    )


class _Forward:
    """The forward passes of one replica."""

    def __init__(self, plan: Plan, worker: Worker, batches: list[Any]) -> None:
        self.plan, self.worker, self.batches = plan, worker, batches

    def run(self, m: int, loop: MicroBatchLoop) -> tuple[Array, ...]:
        """The outputs of a micro-batch."""
        numbering = self.worker.numbering
        numbering.restart(Region.EVALUATE, m)
        with numbering.cell(Region.EVALUATE, m), self.worker.layers(reuse=True):
            values: Sequence[Any] = [self.worker.input(self.batches[m])]
            for stage, position in enumerate(self.plan.positions):
                flight = Flight(values)
                for branch, callable_ in enumerate(position):
                    loop.mark(Phase.FORWARD, stage, branch)
                    flight.forward(callable_, branch)
                values = flight.values
        return tuple(value.array for value in values if isinstance(value, Tensor))
