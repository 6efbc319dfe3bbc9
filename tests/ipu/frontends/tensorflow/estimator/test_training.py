"""train_and_evaluate (law)."""

from __future__ import annotations

import pytest

from ipu.frontends.tensorflow.estimator.training import EvalSpec, TrainSpec, train_and_evaluate
from tests.ipu.frontends.tensorflow.estimator.models import estimator, input_fn
from tests.ipu.frontends.tensorflow.framework import machine


def test_an_evaluation_follows_the_training(tmp_path):
    with machine():
        line = estimator(tmp_path)
        metrics, exports = train_and_evaluate(line, TrainSpec(input_fn, 4), EvalSpec(input_fn, 2))
    assert (metrics["global_step"], exports) == (4, [])
    with pytest.raises(TypeError, match="`train_spec` must have type `TrainSpec`"):
        train_and_evaluate(line, None, EvalSpec(input_fn))
    with pytest.raises(ValueError, match="has no max_steps"):
        train_and_evaluate(line, TrainSpec(input_fn), EvalSpec(input_fn))
