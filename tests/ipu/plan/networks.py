"""Networks in stages, with the whole of each, and what a training leaves."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ipu import ops
from ipu.learn import nn
from ipu.learn.loss_scale import StaticLossScale
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16
from ipu.learn.variables import AUTO_REUSE, variable_scope
from ipu.machine import FpCtl
from ipu.plan.plan import Plan
from ipu.plan.stage import as_values
from ipu.plan.trainer import PlanTrainer
from tests.tiers import pick

FEATURES, CLASSES = 6, 3
#: Of a training that is compared with another one.
STEPS = pick(2, 6, 6)


def joined(*stages: Any) -> Any:
    """Stages one after the other, as one stage."""

    def model(*values: Any) -> Any:
        for stage in stages:
            values = as_values(stage(*values))
        return values if len(values) > 1 else values[0]

    return model


# Four layers in a row, with random masks and moving statistics.


def _first(x: Any) -> Any:
    return nn.dropout(nn.relu(nn.dense(x, 8, "first")), 0.25)


def _second(x: Any) -> Any:
    return nn.relu(nn.batch_norm(nn.dense(x, 8, "second"), "norm"))


def _third(x: Any) -> Any:
    return nn.dropout(nn.gelu(nn.dense(x, 8, "third")), 0.25)


def _fourth(x: Any) -> Any:
    return nn.dense(x, CLASSES, "fourth")


ROW = {
    1: [joined(_first, _second, _third, _fourth)],
    2: [joined(_first, _second), joined(_third, _fourth)],
    4: [_first, _second, _third, _fourth],
}


# A skip threaded through the stages, and a layer that two of them share.


def _shared(x: Any) -> Any:
    with variable_scope("shared", use_resource=True, reuse=AUTO_REUSE):
        return nn.dense(x, 8, "layer")


def _enter(x: Any) -> Any:
    return nn.relu(nn.dense(x, 8, "first"))


def _branch(h: Any) -> Any:
    return nn.relu(nn.dense(h, 8, "second")), h


def _share(g: Any, h: Any) -> Any:
    return _shared(g), h, g


def _join(s: Any, h: Any, g: Any) -> Any:
    total = ops.add(ops.add(_shared(s), h), ops.add(g, h))
    return nn.dense(nn.relu(total), CLASSES, "fourth")


SKIP = {
    1: [joined(_enter, _branch, _share, _join)],
    2: [joined(_enter, _branch), joined(_share, _join)],
    4: [_enter, _branch, _share, _join],
}
#: The stages that share a layer lie on one IPU.
SKIP_MAPPING = {1: [0], 2: [0, 1], 4: [0, 1, 2, 2]}


# Two concurrent stages, of which one passes its input on.


def _left(h: Any) -> Any:
    return nn.relu(nn.dense(h, 5, "left")), h


def _right(h: Any) -> Any:
    return ops.add(nn.relu(nn.dense(h, 8, "right")), h)


def _meet(a: Any, h: Any, b: Any) -> Any:
    return nn.dense(ops.add(nn.dense(a, 8, "wide"), ops.add(h, b)), CLASSES, "fourth")


def _both(h: Any) -> Any:
    return (*_left(h), _right(h))


CONCURRENT = [_enter, [_left, _right], _meet]
ONE_AFTER_THE_OTHER = [joined(_enter, _both, _meet)]


def batch(step: int, samples: int) -> tuple[Any, Any]:
    rng = np.random.default_rng([3, step])
    return rng.standard_normal((samples, FEATURES)), rng.integers(0, CLASSES, samples)


def trainer(plan: Plan, **choices: Any) -> PlanTrainer:
    options: dict[str, Any] = {
        "policy": FP16, "control": FpCtl(esr=True), "loss_scale": StaticLossScale(64.0), "seed": 5,
    }
    optimizer = choices.pop("optimizer", SGD(0.1, 0.9))
    return PlanTrainer(optimizer, plan=plan, **options | choices)


def digest(training: PlanTrainer) -> str:
    """Of variables and slots of every replica."""
    total = hashlib.sha256()
    for worker in training.workers:
        for name, variable in worker.variables.items():
            arrays = [variable.array, *worker.slots.get(name, ())]
            for array in arrays:
                total.update(name.encode() + np.ascontiguousarray(array.codes()).tobytes())
    return total.hexdigest()[:16]


def outcome(plan: Plan, steps: int = STEPS, per_micro_batch: int = 2, **choices: Any) -> Any:
    """Losses, digest and status after some steps."""
    training = trainer(plan, **choices)
    samples = plan.samples(per_micro_batch)
    losses = [training.step(*batch(t, samples)) for t in range(steps)]
    return losses, digest(training), training.device.status
