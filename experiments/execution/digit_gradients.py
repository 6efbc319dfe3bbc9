"""Gradients of the digits network for many micro-batches, as numbers, after a short training."""

from __future__ import annotations

from itertools import chain, count, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.result import UnitUsed
from ipu.experiments.lab.variants import Variant
from ipu.experiments.training import digits
from ipu.experiments.training.digit_runs import NETWORK, train
from ipu.learn.loss_scale import StaticLossScale
from ipu.learn.optim import SGD
from ipu.learn.policy import Policy
from ipu.learn.train import Trainer

__all__ = ["NETWORK", "MicroBatches"]

RATE = 0.1


class MicroBatches(NamedTuple):
    """A network after training, and the micro-batches that follow."""

    trainer: Trainer
    batches: list[NDArray[np.int64]]

    @classmethod
    def of(
        cls, policy: Policy, seed: int, micro_batches: int, size: int, steps: int
    ) -> MicroBatches:
        """The network of a seed after that many steps to nearest, and its next micro-batches."""
        trainer = train(Variant("trained", policy), SGD(RATE), seed, 1, steps=steps).trainer
        learn, _ = digits.load().split(seed)
        epochs = (digits.batches(learn, size, seed, epoch) for epoch in count(2))
        return cls(trainer, list(islice(chain.from_iterable(epochs), micro_batches)))

    def gradients(self, loss_scale: float = 1.0) -> NDArray[np.float64]:
        """Of loss × scale, as the backward passes leave them.

        Shapes    (micro-batches, parameters)
        """
        data, trainer = digits.load(), self.trainer
        trainer.loss_scale = StaticLossScale(loss_scale)
        rows = []
        for batch in self.batches:
            pairs = trainer.scaled_gradients(trainer.loss(data.images[batch], data.labels[batch]))
            values = [gradient.values.astype(np.float64).reshape(-1) for gradient, _ in pairs]
            rows.append(np.concatenate(values))
        return np.stack(rows)

    @property
    def units(self) -> tuple[UnitUsed, ...]:
        """What the gradients rest on."""
        return units_of(self.trainer.device)
