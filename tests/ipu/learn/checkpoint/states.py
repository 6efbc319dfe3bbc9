"""States to save, and the training that they are of, for tests of checkpoints."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np

from ipu.learn.checkpoint import Kept, TrainingState
from ipu.learn.nn import dense
from ipu.learn.optim import SGD
from ipu.learn.policy import MIXED
from ipu.learn.train import Trainer
from ipu.machine import FpCtl

EMPTY = TrainingState({}, {}, {}, {}, 0, {})


def bits(state: TrainingState) -> dict:
    """Every bit of a state, comparable."""
    record = asdict(state)
    record["parameters"] = {n: _bits(k) for n, k in state.parameters.items()}
    record["slots"] = {n: [_bits(k) for k in s] for n, s in state.slots.items()}
    if state.streams is not None:
        record["streams"] = state.streams.tolist()
    return json.loads(json.dumps(record))


def _bits(item):
    return (item.format, item.values.tobytes().hex()) if isinstance(item, Kept) else item


def training(units=2, **options):
    options = {"policy": MIXED, "control": FpCtl(esr=True)} | options
    trainer = Trainer(lambda x: dense(x, units, "only"), **{"optimizer": SGD(0.5)} | options)
    trainer.forward(np.eye(2))
    return trainer
