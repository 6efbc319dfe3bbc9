"""train_and_evaluate (law)."""

from __future__ import annotations

import pytest

from ipu.frontends.tensorflow.estimator.training import EvalSpec, TrainSpec, train_and_evaluate
from ipu.frontends.tensorflow.settings.notes import forget
from tests.ipu.frontends.tensorflow.estimator.models import estimator, input_fn
from tests.ipu.frontends.tensorflow.framework import machine


@pytest.mark.source("S1-20")
def test_an_evaluation_follows_the_training(tmp_path):
    with machine():
        line = estimator(tmp_path)
        metrics, exports = train_and_evaluate(line, TrainSpec(input_fn, 4), EvalSpec(input_fn, 2))
    assert (metrics["global_step"], exports) == (4, [])
    with pytest.raises(TypeError, match="`train_spec` must have type `TrainSpec`"):
        train_and_evaluate(line, None, EvalSpec(input_fn))
    with pytest.raises(ValueError, match="has no max_steps"):
        train_and_evaluate(line, TrainSpec(input_fn), EvalSpec(input_fn))


def test_an_evaluation_that_cannot_be_is_refused_before_the_training(tmp_path):
    forget()
    with machine(), pytest.raises(ValueError, match="One of `num_steps` or"):
        train_and_evaluate(
            estimator(tmp_path), TrainSpec(input_fn, 4), EvalSpec(input_fn, steps=None)
        )
    with machine():
        line = estimator(tmp_path, iterations=4)
        with pytest.raises(ValueError, match=r"steps \(6\) must be a multiple of"):
            train_and_evaluate(line, TrainSpec(input_fn, 4), EvalSpec(input_fn, 6))
        with pytest.warns(RuntimeWarning, match="throttle_secs=0 is accepted, but one"):
            train_and_evaluate(line, TrainSpec(input_fn, 4), EvalSpec(input_fn, 4, throttle_secs=0))
