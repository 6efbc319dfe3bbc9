"""Accumulation and pipelines of Keras models (differential with one large batch; messages)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.frontends.tensorflow.keras.options import options_of
from ipu.frontends.tensorflow.settings.notes import forget
from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, tf
from tests.ipu.frontends.tensorflow.keras.test_functions import X, Y, data

GROUPED, INTERLEAVED, SEQUENTIAL = ipu.pipelining_ops.PipelineSchedule


def model(steps=20, optimizer=None):
    tf.keras.utils.set_random_seed(1)
    layers = [tf.keras.layers.Dense(16, "relu", input_shape=(8,)), tf.keras.layers.Dense(4)]
    net = tf.keras.Sequential(layers)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(optimizer or tf.keras.optimizers.SGD(0.1, 0.9), loss, steps_per_execution=steps)
    return net


def fit(ipus, change, **options):
    with machine(), ipu.ipu_strategy.IPUStrategyV1().scope():
        configured(ipus)
        net = model(**options)
        change(net)
        losses = net.fit(data(), epochs=2, verbose=0).history["loss"]
        return losses, net.get_weights()


def accumulating(net, **options):
    named = {"gradient_accumulation_steps_per_replica": 4} | options
    net.set_gradient_accumulation_options(**named)


@pytest.fixture(scope="module")
def mean_of_four():
    return fit(1, lambda m: accumulating(m, gradient_accumulation_reduction_method="mean"))


def test_the_mean_of_four_batches_is_that_of_a_large_one(mean_of_four):
    large = tf.data.Dataset.from_tensor_slices((X, Y)).batch(64, drop_remainder=True)
    expected = model(1)
    expected.fit(large, epochs=2, verbose=0)
    for a, b in zip(mean_of_four[1], expected.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("schedule", "mapping"), [(GROUPED, None), (INTERLEAVED, [1, 0])])
def test_a_pipeline_has_the_bits_of_the_accumulation(mean_of_four, schedule, mapping):
    def stages(net):
        net.set_pipeline_stage_assignment([0, 1])
        net.set_pipelining_options(
            4, device_mapping=mapping, pipeline_schedule=schedule,
            gradient_accumulation_reduction_method="mean",
        )

    losses, weights = fit(2, stages)
    assert losses == mean_of_four[0]
    for a, b in zip(weights, mean_of_four[1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_executions_hold_whole_updates_and_counts_fit_the_schedule():
    with pytest.raises(
        RuntimeError, match=r"value \(set to 10\) is not divisible by `grad.*` \(4\)"
    ):
        fit(1, accumulating, steps=10)

    def three(net):
        net.set_pipeline_stage_assignment([0, 1])
        net.set_pipelining_options(5)

    with pytest.raises(tf.errors.FailedPreconditionError, match="multiple of 4, but it is 5"):
        fit(2, three)
    with pytest.raises(ValueError, match="Pipeline requires at least two computational stages"):
        fit(1, lambda net: net.set_pipelining_options(4))
    with pytest.raises(ValueError, match="n_ipus=3 is no multiple of the 2 IPUs that the stages"):
        fit(3, lambda net: (net.set_pipeline_stage_assignment([0, 1]),
                             net.set_pipelining_options(4)))


class Casting(tf.keras.optimizers.SGD):
    """Descends by gradients in the variables' type."""

    def apply_gradients(self, grads_and_vars, name=None, **named):
        """Cast, then apply."""
        return super().apply_gradients([(tf.cast(g, v.dtype), v) for g, v in grads_and_vars])


def test_accumulators_of_another_type_need_an_optimiser_that_casts():
    message = (
        r"^SGD updates dense\w*/kernel:0, which is float32, by .* type float16; leave dtype out"
    )
    with pytest.raises(TypeError, match=message):
        fit(1, lambda net: accumulating(net, dtype=tf.float16))
    losses, _ = fit(1, lambda net: accumulating(net, dtype=tf.float16), optimizer=Casting(0.1))
    assert losses[1] < losses[0]


def test_setters_refuse_what_they_do_not_know():
    net = model()
    with pytest.raises(ValueError, match="gradient_accumulation_steps_per_replica=0 is not"):
        net.set_gradient_accumulation_options(0)
    with pytest.raises(ValueError, match="Cannot parse 'max'"):
        net.set_pipelining_options(2, gradient_accumulation_reduction_method="max")
    with pytest.raises(TypeError, match="unexpected keyword argument 'gradient_accum'"):
        net.set_pipelining_options(gradient_accum=2)
    with pytest.raises(TypeError, match="not a member of the PipelineSchedule"):
        net.set_pipelining_options(2, pipeline_schedule="Grouped")
    with pytest.raises(ValueError, match=r"\(3\) does not match the total number of layers \(2\)"):
        net.set_pipeline_stage_assignment([0, 1, 1])
    with pytest.raises(ValueError, match="must start at 0 and grow by at most 1"):
        net.set_pipeline_stage_assignment([0, 2])
    net.set_pipeline_stage_assignment([0, 1])
    assert net.get_pipeline_stage_assignment() == [0, 1]
    net.reset_pipeline_stage_assignment()
    assert options_of(net).stages is None
    forget()
    for call in (
        lambda: net.set_infeed_queue_options(prefetch_depth=2),
        lambda: net.set_outfeed_queue_options(buffer_depth=2),
        lambda: net.set_asynchronous_callbacks(True),
    ):
        with pytest.warns(RuntimeWarning, match="accepted"):
            call()


def test_options_of_queues_and_stages_are_those_of_the_queues_and_stages():
    net = model()
    with pytest.raises(ValueError, match="prefetch_depth=256 is not a depth"):
        net.set_infeed_queue_options(prefetch_depth=256)
    with pytest.raises(TypeError, match="unexpected keyword argument 'depth'"):
        net.set_outfeed_queue_options(depth=2)
    with pytest.raises(ValueError, match="replicated_metric_reduction_method='MAX' is not known"):
        net.set_replication_options("MAX")
    with pytest.raises(NotImplementedError, match="stages of Keras share their options here"):
        net.set_pipelining_options(2, forward_propagation_stages_poplar_options=[{}])
    forget()
    with pytest.warns(RuntimeWarning, match="where the tensors of a pipeline lie changes no bit"):
        net.set_pipelining_options(2, offload_activations=True)
    with pytest.warns(RuntimeWarning, match="accumulate_outfeed changes no number"):
        net.set_pipelining_options(2, accumulate_outfeed=True)
    with pytest.raises(TypeError, match="recomputation_mode is not a member of the Recomputation"):
        net.set_pipelining_options(2, recomputation_mode="Auto")
