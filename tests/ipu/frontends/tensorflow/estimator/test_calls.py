"""Functions get the arguments that they name (law, golden messages)."""

from __future__ import annotations

import pytest

from ipu.frontends.tensorflow.estimator.calls import call_input_fn, call_model_fn, names, unpacked
from ipu.frontends.tensorflow.estimator.specs import EstimatorSpec, ModeKeys
from tests.ipu.frontends.tensorflow.framework import tf


def test_input_functions():
    data = tf.data.Dataset.range(3)
    assert call_input_fn(lambda: data, mode="train") is data
    assert call_input_fn(lambda mode, input_context=None: data, mode="train") is data
    with pytest.raises(ValueError, match="input_fn must return Dataset"):
        call_input_fn(lambda: [1], mode="train")
    assert names(lambda a, *, b=1: a) == {"a", "b"}


def test_model_functions():
    spec = EstimatorSpec(ModeKeys.PREDICT, predictions=1)
    assert call_model_fn(lambda features: spec, 1, None, "infer", {}, None) is spec
    with pytest.raises(ValueError, match="does not take labels, but input_fn returns labels"):
        call_model_fn(lambda features: spec, 1, 2, "train", {}, None)
    with pytest.raises(ValueError, match="`model_fn` must return IPUEstimatorSpec or EstimatorS"):
        call_model_fn(lambda features: 1, 1, None, "infer", {}, None)


def test_elements():
    assert unpacked((1, 2), {}) == (1, 2)
    assert unpacked((1,), {}) == (1, None)
    assert unpacked((), {"a": 1}) == ({"a": 1}, None)
    with pytest.raises(ValueError, match="expected 1 or 2 elements, got 3"):
        unpacked((1, 2, 3), {})
