"""What specs refuse (golden messages)."""

from __future__ import annotations

import pytest

from ipu.frontends.tensorflow.estimator.specs import (
    EstimatorSpec,
    EvalSpec,
    IPUEstimatorSpec,
    ModeKeys,
    TrainSpec,
)
from tests.ipu.frontends.tensorflow.framework import tf

CASES = [
    ({"mode": "test"}, ValueError, "is not one of ModeKeys"),
    ({"mode": ModeKeys.EVAL}, ValueError, "Missing loss."),
    ({"mode": ModeKeys.TRAIN, "loss": 1}, ValueError, "Missing train_op."),
    ({"mode": ModeKeys.PREDICT}, ValueError, "Missing predictions."),
]
CALLS = [
    ([print, []], TypeError, "`host_call` must be a tuple"),
    ((print,), ValueError, "`host_call` must have two elements"),
    ((1, []), TypeError, "first element in `host_call` must be callable"),
    ((print, {}), TypeError, "second element in `host_call` must be a list"),
]


@pytest.mark.parametrize(("fields", "kind", "sentence"), CASES)
@pytest.mark.parametrize("spec", [EstimatorSpec, IPUEstimatorSpec])
def test_a_mode_needs_its_parts(spec, fields, kind, sentence):
    with pytest.raises(kind, match=sentence):
        spec(**fields)


@pytest.mark.parametrize(("call", "kind", "sentence"), CALLS)
def test_calls_of_the_host_are_pairs(call, kind, sentence):
    with pytest.raises(kind, match=sentence):
        IPUEstimatorSpec(ModeKeys.TRAIN, loss=1, train_op=1, host_call=call)
    IPUEstimatorSpec(ModeKeys.EVAL, loss=1, eval_metrics=(print, {}))


def test_specs_of_training_and_evaluation():
    assert EvalSpec(print).steps == 100
    with pytest.raises(ValueError, match="Must specify max_steps > 0, given: 0"):
        TrainSpec(print, 0)
    with pytest.raises(ValueError, match="Must specify steps > 0, given: -1"):
        EvalSpec(print, -1)
    for spec in (TrainSpec, EvalSpec):
        with pytest.raises(TypeError, match="`input_fn` must be callable"):
            spec(1)
    for name in ("start_delay_secs", "throttle_secs"):
        with pytest.raises(ValueError, match=f"Must specify {name} >= 0, given: -1"):
            EvalSpec(print, **{name: -1})
    with pytest.raises(TypeError, match="`name` must be string, given: 3"):
        EvalSpec(print, name=3)


def test_hooks_and_listeners_are_those_of_tensorflow():
    hook, listener = tf.estimator.SessionRunHook(), tf.estimator.CheckpointSaverListener()
    assert EvalSpec(print, hooks=[hook]).hooks == TrainSpec(print, hooks=[hook]).hooks == (hook,)
    assert TrainSpec(print, hooks=None, saving_listeners=[listener]).saving_listeners == (listener,)
    with pytest.raises(TypeError, match="All hooks must be `SessionRunHook` instances, given: 3"):
        EvalSpec(print, hooks=[3])
    with pytest.raises(TypeError, match="All saving_listeners must be `CheckpointSaverListener` i"):
        TrainSpec(print, saving_listeners=[hook])
