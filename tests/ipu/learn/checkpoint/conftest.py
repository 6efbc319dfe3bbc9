"""Fixtures of the tests of checkpoints."""

from __future__ import annotations

import pytest

from tests.ipu.learn import resuming
from tests.ipu.learn.checkpoint.states import bits


@pytest.fixture(scope="module")
def whole():
    """The bits after 12 steps without interruption, and the training itself."""
    trainer, batches = resuming.build()
    resuming.train(trainer, batches, 12)
    return bits(trainer.state(batches))
