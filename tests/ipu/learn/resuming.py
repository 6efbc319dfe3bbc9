"""A training that saves after every step, as a program: FOLDER STEPS.

It prints each step after it is saved. `tests.ipu.learn.test_checkpoint` kills it.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ipu.feed.batches import Batches
from ipu.feed.data import Images
from ipu.learn.checkpoint import NAME, load, save
from ipu.learn.loss_scale import LEARNING_RATE, StaticLossScale
from ipu.learn.nn import batch_norm, dense, dropout, relu
from ipu.learn.optim import SGD, Optimizer
from ipu.learn.policy import FP16
from ipu.learn.tensor import Tensor
from ipu.learn.train import Trainer
from ipu.machine import FpCtl

USUAL = SGD(0.5, 0.9)


def network(x: Tensor) -> Tensor:
    """Logits of two dense layers, with moving statistics and random bits between them."""
    x = relu(batch_norm(dense(x, 16, "hidden"), "norm"))
    return dense(dropout(x, 0.25), 10, "output")


def build(optimizer: Optimizer = USUAL, **changes: Any) -> tuple[Trainer, Batches]:
    """FP16 with stochastic rounding, momentum and a loss scale; nothing trained yet."""
    options: dict[str, Any] = {
        "policy": FP16, "control": FpCtl(esr=True), "count": True,
        "loss_scale": StaticLossScale(8.0, LEARNING_RATE),
    }
    return Trainer(network, optimizer, **options | changes), Batches(images(), 16)


def images() -> Images:
    """Noise with labels: bits are compared here, nothing is learnt."""
    rng = np.random.default_rng(0)
    return Images(rng.integers(0, 256, (200, 64), np.uint8), rng.integers(0, 10, 200))


def resumed(folder: Path) -> tuple[Trainer, Batches]:
    """Where the checkpoint in the folder is, else at the beginning."""
    trainer, batches = build()
    if (folder / NAME).exists():
        trainer.forward(batches.images[:1].values)
        trainer.restore(load(folder / NAME), batches)
    return trainer, batches


def train(trainer: Trainer, batches: Batches, until: int) -> None:
    for images, labels in islice(batches, until - batches.position):
        trainer.step(images, labels)


if __name__ == "__main__":
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    trainer, batches = resumed(folder)
    while batches.position < steps:
        train(trainer, batches, batches.position + 1)
        save(folder / NAME, trainer.state(batches))
        print(batches.position, flush=True)
