"""Trainings that tests run on one process and on several."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ipu.plan.plan import Plan
from ipu.plan.trainer import PlanTrainer
from tests.ipu.plan.networks import ROW, batch, trainer

ORDERS = ("tf_ring", "clockwise_ring", "tree", "meet_in_middle_ring")
COUNT = 2


def plan(replicas: int, order: str, **choices: Any) -> Plan:
    return Plan(ROW[1], count=COUNT, replicas=replicas, order=order, **choices)


def share(values: Any, work_plan: Plan, local: range) -> Any:
    """The samples of a process's replicas, of the batch of all: micro-batch m·R + r is r's."""
    size = work_plan.micro_batch(len(values))
    blocks = np.asarray(values).reshape(work_plan.count, work_plan.replicas, size, -1)
    return blocks[:, local.start : local.stop].reshape(-1, *np.shape(values)[1:])


@lru_cache(maxsize=64)
def whole(work_plan: Plan, steps: int, control: Any) -> tuple[list[float], PlanTrainer]:
    """Losses of the training on one process, and the training itself."""
    training = trainer(work_plan, count=True, control=control)
    losses = [training.step(*batch(t, work_plan.samples(2))) for t in range(steps)]
    return losses, training
