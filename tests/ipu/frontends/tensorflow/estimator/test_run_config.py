"""The estimator's names, config, calls and hooks (golden, law)."""

from __future__ import annotations

import pytest

from ipu.frontends.tensorflow.estimator import estimator, specs
from ipu.frontends.tensorflow.estimator import names as vendor_names
from ipu.frontends.tensorflow.estimator.calls import call_input_fn, call_model_fn, names, unpacked
from ipu.frontends.tensorflow.estimator.hooks import InfeedHook, StepHook
from ipu.frontends.tensorflow.estimator.run_config import IPURunConfig, RunConfig
from ipu.frontends.tensorflow.estimator.specs import EstimatorSpec, ModeKeys
from ipu.frontends.tensorflow.settings.legacy import auto_select_ipus, create_ipu_config
from tests.ipu.frontends.tensorflow.framework import ipu, session, tf


@pytest.mark.source("S1-15")
def test_replicas_times_shards_are_the_ipus():
    four = auto_select_ipus(create_ipu_config(), 4)
    assert IPURunConfig(ipu_options=four, num_replicas=2, num_shards=2).num_replicas == 2
    with pytest.raises(ValueError, match=r"configured with 3 devices \(3 num_replicas times 1 num"):
        IPURunConfig(ipu_options=four, num_replicas=3)
    with pytest.raises(ValueError, match="requires more than one device, but `ipu_options` is No"):
        IPURunConfig(num_replicas=2)
    with pytest.raises(TypeError, match="is no IPUConfig"):
        IPURunConfig(ipu_options={})
    with pytest.raises(
        ValueError, match="iterations_per_loop=0 is not a number of them; use 1 or more"
    ):
        IPURunConfig(0)
    assert IPURunConfig(ipu_options=auto_select_ipus(create_ipu_config(), [1, 2]), ordinal=1,
                        num_replicas=2).ordinal == 1
    assert RunConfig(None).ipu_run_config == IPURunConfig()


def test_the_estimator_and_its_spec():
    assert ipu.ipu_estimator is vendor_names
    assert vendor_names.IPUEstimator is estimator.IPUEstimator
    assert vendor_names.IPUEstimatorSpec is specs.IPUEstimatorSpec


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


v1 = tf.compat.v1


def test_a_run_ends_at_its_last_step():
    with session() as run:
        step = v1.get_variable("step", [], tf.int64, v1.zeros_initializer())
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(1.0).repeat())
        hooks = [StepHook(step, 2, 6, None), InfeedHook(infeed)]
        taken = infeed._dequeue()
        with v1.train.MonitoredSession(hooks=hooks) as monitored:
            launches = 0
            while not monitored.should_stop():
                assert monitored.run(taken) == 1
                launches += 1
        assert launches == 3
        del run


def test_one_end_is_given():
    with session():
        step = v1.get_variable("step", [], tf.int64, v1.zeros_initializer())
        with pytest.raises(ValueError, match="One of `num_steps` or `final_step`"):
            StepHook(step, 1, None, None)
        with pytest.raises(ValueError, match="Only one of `num_steps` or `final_step`"):
            StepHook(step, 1, 1, 1)
