"""A training step that writes a digest of every operation, beside the same step without digests.

Three dense layers and Adam in `ipu.learn`; the reference is the step that nobody watches.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from weakref import finalize

import numpy as np

from ipu.experiments.bench.timing import Call, Size, TimedCase
from ipu.learn.nn import dense
from ipu.learn.optim import Adam
from ipu.learn.tensor import Tensor
from ipu.learn.train import Trainer
from ipu.ops import relu
from ipu.run.native import machine

__all__ = ["cases"]

#: Samples, inputs and width, as a rule and with --quick.
_SIZES = (64, 256, 512), (8, 16, 16)
_CLASSES = 10
#: Policy, its format, and whether rounding is stochastic.
_ROUNDINGS = ("fp16", "binary16", True), ("fp32", "binary32", False)


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """FP16 with stochastic rounding, and binary32."""
    samples, inputs, width = _SIZES[quick]
    for policy, fmt, sr in _ROUNDINGS:
        step = partial(_step, policy, sr, samples, inputs, width)
        yield TimedCase(
            "digests", fmt, partial(step, digests=True), step(digests=False), samples,
            size.repeats, "SR" if sr else "RNE", flags=True, data="XXH3",
        )


def _step(
    policy: str, sr: bool, samples: int, inputs: int, width: int, *, digests: bool
) -> Call:
    x = np.random.default_rng(0).standard_normal((samples, inputs))
    labels = np.arange(samples) % _CLASSES
    run = machine(policy, sr=sr)

    def network(images: Tensor) -> Tensor:
        hidden = relu(dense(images, width, "first"))
        return dense(relu(dense(hidden, width, "second")), _CLASSES, "last")

    trainer = Trainer(network, Adam(0.01, epsilon=1e-4), run=run)

    if digests:
        finalize(trainer, run.digest(os.devnull).close)
    return partial(trainer.step, x, labels)
