"""Calls of Python functions that a step of training takes (golden).

They are what small networks cost. A bound that is passed asks for a look, not for a higher bound.
"""

from __future__ import annotations

import numpy as np
import pytest

from ipu.learn import nn
from ipu.learn.optim import SGD
from ipu.learn.train import Trainer
from tests.calls import codes_called


@pytest.mark.parametrize(
    ("policy", "momentum", "bound"), [("fp16", 0.0, 1179), ("fp16", 0.9, 1179), ("fp32", 0.9, 1480)]
)
def test_a_step_of_two_dense_layers_calls_few_functions(policy, momentum, bound):
    rng = np.random.default_rng(0)
    images, labels = rng.standard_normal((8, 16)), rng.integers(0, 10, 8)
    trainer = Trainer(
        lambda x: nn.dense(nn.relu(nn.dense(x, 32, "hidden")), 10, "output"),
        SGD(0.1, momentum), policy=policy,
    )
    calls = codes_called(lambda: trainer.step(images, labels), warm=4)
    assert len(calls) <= bound
