"""A training by a plan that saves after every step, as a program: FOLDER STEPS.

It prints each step after it is saved, and a digest at the end. `test_resuming` kills it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ipu.learn.checkpoint import NAME, load, save
from ipu.plan.plan import Plan
from tests.ipu.plan.networks import ROW, batch, digest, trainer

PLAN = Plan(ROW[4], count=8, replicas=2, recompute=True)


def train(folder: Path, steps: int) -> str:
    """Go on with what the folder holds; the digest at the end."""
    training = trainer(PLAN, count=True)
    if (folder / NAME).exists():
        training.forward(batch(0, 2)[0])
        training.restore(load(folder / NAME))
    while training.steps < steps:
        training.step(*batch(training.steps, PLAN.samples(2)))
        save(folder / NAME, training.state())
        print(training.steps, flush=True)
    return digest(training)


if __name__ == "__main__":
    print(train(Path(sys.argv[1]), int(sys.argv[2])), flush=True)
