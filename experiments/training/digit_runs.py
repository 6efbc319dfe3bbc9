"""Trainings on the digits, as several experiments need them."""

from __future__ import annotations

import warnings
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim import Philox
from ipu.experiments.lab.variants import Variant
from ipu.experiments.training import digits
from ipu.learn.optim import SGD, Observer
from ipu.learn.train import Trainer
from ipu.machine import FpCtl

BATCH = 32
NETWORK = "64-64-10 dense, relu"


class Trained(NamedTuple):
    """A finished training: losses (epochs, batches), and the share of test digits recognised."""

    trainer: Trainer
    losses: NDArray[np.float64]
    accuracy: float


def train(
    variant: Variant,
    optimizer: SGD,
    seed: int,
    epochs: int,
    *,
    steps: int | None = None,
    draws: int = 0,
    observe: Observer | None = None,
    counted: bool = False,
) -> Trained:
    """Train on the split and the batches of a seed.

    steps     cuts the epochs short.
    draws     number of the random bits, with everything else the same.
    counted   exceptions are counted by layer.
    """
    data = digits.load()
    with warnings.catch_warnings():
        # Learning rates that are subnormal in FP16 are part of what is shown.
        warnings.simplefilter("ignore", RuntimeWarning)
        trainer = Trainer(
            digits.network, optimizer, policy=variant.policy, loss_scale=variant.loss_scale,
            control=FpCtl(esr=variant.stochastic), seed=seed,
            rounding_seed=Philox(seed).spawn(draws).seed, observe=observe, count=counted,
        )
        learn, test = data.split(seed)
        images = trainer.device.from_host(data.images, variant.policy.default.activations)
        losses = [
            [trainer.step(images[b], data.labels[b])
             for b in islice(digits.batches(learn, BATCH, seed, epoch), steps)]
            for epoch in range(1, epochs + 1)
        ]
        accuracy = trainer.accuracy(images[test], data.labels[test])
    return Trained(trainer, np.array(losses), accuracy)
