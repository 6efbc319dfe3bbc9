"""A small network and its data, for tests of training."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu.learn.nn import dense, relu
from ipu.learn.optim import SGD
from ipu.learn.tensor import Tensor
from ipu.learn.train import Trainer

RNG = np.random.default_rng(1)
X, LABELS = RNG.integers(0, 17, (24, 8)) / 16, RNG.integers(0, 3, 24)


def network(x: Tensor) -> Tensor:
    return dense(relu(dense(x, 6, "hidden")), 3, "output")


def trainer(**choices: Any) -> Trainer:
    return Trainer(network, choices.pop("optimizer", SGD(0.05, 0.9)), **choices)


def trained(steps: int = 6, **choices: Any) -> tuple[Trainer, list[float]]:
    training = trainer(**choices)
    losses = [training.step(X, LABELS) for _ in range(steps)]
    return training, losses


def codes(training: Trainer) -> dict[str, list[Any]]:
    return {name: v.array.codes().tolist() for name, v in training.variables.items()}
