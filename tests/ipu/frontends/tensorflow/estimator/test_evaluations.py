"""When a training's checkpoints are evaluated (law); the programs are in test_training."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ipu.frontends.tensorflow.estimator.evaluations import EvaluatingListener
from ipu.frontends.tensorflow.estimator.specs import EvalSpec
from tests.ipu.frontends.tensorflow.framework import machine


class Counted:
    """An estimator that notes its evaluations."""

    model_dir = "d"

    def __init__(self):
        self.paths, self.step = [], 0

    def latest_checkpoint(self):
        """The path of the checkpoint that was saved last."""
        return f"model.ckpt-{self.step}"

    def evaluate(self, input_fn, steps, hooks, checkpoint_path, name):
        """Metrics of the checkpoint."""
        self.paths.append(checkpoint_path)
        return {"global_step": self.step}


def followed(steps, throttle_secs, workers=None):
    """Checkpoints that are evaluated of a training that saves at these steps."""
    estimator = Counted()
    spec = EvalSpec(print, throttle_secs=throttle_secs)
    listener = EvaluatingListener(estimator, spec, steps[-1], workers)
    with machine():
        listener.begin()
        for step in steps:
            estimator.step = step
            listener.after_save(None, step)
        listener.end(None, steps[-1])
    assert listener.metrics == {"global_step": steps[-1]}
    return [int(path.rpartition("-")[2]) for path in estimator.paths]


@pytest.mark.parametrize(
    ("steps", "throttle", "evaluated"),
    [([0, 2, 4, 6], 0, [2, 4, 6]), ([0, 2, 4, 6], 10_000, [2, 6]), ([0, 2], 10_000, [2]),
     ([4, 6, 8], 0, [6, 8]), ([4], 0, [4])],
)
def test_the_first_checkpoint_is_that_of_the_start(steps, throttle, evaluated):
    assert followed(steps, throttle) == evaluated


def test_workers_follow_the_first_ones_clock():
    """Its checkpoint is due whatever the own clock says, and is not."""
    for due, evaluated in ((1, [2, 4, 6]), (0, [6])):
        root = SimpleNamespace(of_root=lambda value, what, due=due: due)
        assert followed([0, 2, 4, 6], 10_000, root) == evaluated
