"""Training and inference: dropout, statistics that a trap leaves alone (law)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, FloatingPointTrap
from ipu import ops
from ipu.learn import nn
from ipu.learn.mode import training
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16
from ipu.learn.tensor import Tensor
from ipu.learn.train import Trainer
from ipu.machine import Device, FpCtl


def normed(x: Tensor) -> Tensor:
    return nn.batch_norm(x, "norm", momentum=0.75)


def test_a_trap_leaves_moving_statistics_alone():
    trainer = Trainer(normed, SGD(0.5), policy=FP16, control=FpCtl(oflo=True))
    x, labels = np.array([[1.0, 2.0], [3.0, -4.0]]), np.array([0, 1])
    moving = "all_vars/norm/moving_mean"
    trainer.model = lambda x: ops.scale(normed(x), factor=60000.0)
    trainer.step(x, labels)
    before = trainer.variables[moving].array.values.tolist()
    trainer.model = lambda x: ops.square(ops.scale(normed(x), factor=60000.0))
    with pytest.raises(FloatingPointTrap):
        trainer.step(x, labels)
    assert trainer.variables[moving].array.values.tolist() == before != [0.0, 0.0]


def test_dropout_drops_in_training_only():
    device = Device()
    x = Tensor(device.from_host(np.ones(64), BINARY16), device)
    assert nn.dropout(x, 0.5) is x
    with training():
        result = nn.dropout(x, 0.5).array.values
        assert nn.dropout(x, 0.0) is x
    assert set(result.tolist()) == {0.0, 2.0}
