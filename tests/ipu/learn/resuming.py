"""A training that saves after every step, as a program: FOLDER STEPS.

It prints each step after it is saved. `tests.ipu.learn.test_checkpoint` kills it.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

from experiments.digits import network
from ipu.feed.batches import Batches
from ipu.feed.data import digits
from ipu.learn import ops
from ipu.learn.checkpoint import NAME, load, save
from ipu.learn.loss_scale import LEARNING_RATE, StaticLossScale
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16
from ipu.learn.tensor import Tensor
from ipu.learn.train import Trainer
from ipu.machine import FpCtl


def flat(x: Tensor) -> Tensor:
    return network(ops.reshape(x, shape=(x.shape[0], 64)))


def build(seed: int = 0) -> tuple[Trainer, Batches]:
    """FP16 with stochastic rounding, momentum and a loss scale; nothing trained yet."""
    trainer = Trainer(
        flat, SGD(0.5, 0.9), policy=FP16, control=FpCtl(esr=True), seed=seed, count=True,
        loss_scale=StaticLossScale(8.0, LEARNING_RATE),
    )  # fmt: skip
    return trainer, Batches(digits().learn, 16, seed=seed)


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
