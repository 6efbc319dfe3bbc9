"""Keras models on several replicas (differential with one large batch, law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.frontends.tensorflow.keras.options import replicas_of
from ipu.frontends.tensorflow.settings.notes import forget
from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, tf
from tests.ipu.frontends.tensorflow.keras.test_functions import X, Y, data
from tests.ipu.frontends.tensorflow.keras.test_options import accumulating, fit, model

_, INTERLEAVED, SEQUENTIAL = ipu.pipelining_ops.PipelineSchedule


def pipelined(count, **options):
    def change(net):
        net.set_pipeline_stage_assignment([0, 1])
        net.set_pipelining_options(count, **options)

    return change


def same(left, right):
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(a, b)


def test_two_replicas_train_as_one_with_a_batch_twice_as_large():
    large = tf.data.Dataset.from_tensor_slices((X, Y)).batch(32, drop_remainder=True)
    expected = model(1)
    expected.fit(large, epochs=2, verbose=0)
    _, weights = fit(2, lambda net: None)
    for a, b in zip(weights, expected.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)


def test_two_replicas_of_equal_batches_are_one_under_a_policy_of_two_formats():
    """x + x and half of it are exact, so the mean has the gradient's bits, in its format."""

    def weights(ipus):
        rows = data().flat_map(lambda *pair: tf.data.Dataset.from_tensors(pair).repeat(ipus))
        with machine(policy="p=f32,c=f16"), ipu.ipu_strategy.IPUStrategyV1().scope():
            configured(ipus)
            net = model(20)
            net.fit(rows, epochs=1, verbose=0, steps_per_epoch=20 * ipus)
            return net.get_weights()

    same(weights(2), weights(1))


@pytest.fixture(scope="module")
def two_replicas_of_two():
    return fit(2, lambda net: accumulating(net, gradient_accumulation_steps_per_replica=2),
               steps=2)


@pytest.mark.parametrize("options", [{"pipeline_schedule": INTERLEAVED},
                                     {"pipeline_schedule": SEQUENTIAL}])
def test_pipelines_of_replicas_have_the_bits_of_the_accumulation(two_replicas_of_two, options):
    losses, weights = fit(4, pipelined(2, **options), steps=2)
    assert losses == two_replicas_of_two[0]
    same(weights, two_replicas_of_two[1])


def scored(method, ipus=2, steps=4):
    """evaluate and predict of a model that is as it was built, and the machine's launches."""
    with machine(), ipu.ipu_strategy.IPUStrategyV1().scope():
        used = configured(ipus)
        net = model(steps)
        net.set_replication_options(method)
        loss = net.evaluate(data(), verbose=0)
        launches = used.launches
        return loss, net.predict(data(), verbose=0), launches


def test_predictions_come_in_the_order_of_the_data():
    _, one, launches = scored("NONE", 1)
    assert launches == 5
    _, two, launches = scored("NONE", steps=2)
    assert launches == 5
    np.testing.assert_array_equal(one, two)


def test_metrics_are_of_the_last_replica_or_of_all():
    with machine():
        net = model(1)
        odd = data().enumerate().filter(lambda i, _: i % 2 == 1).map(lambda _, pair: pair)
        even = data().enumerate().filter(lambda i, _: i % 2 == 0).map(lambda _, pair: pair)
        first, last = (net.evaluate(part, verbose=0) for part in (even, odd))
    assert scored("NONE")[0] == pytest.approx(last, abs=1e-6)
    assert scored("MEAN")[0] == pytest.approx((first + last) / 2, abs=1e-6)
    assert scored("sum")[0] == pytest.approx(first + last, abs=1e-5)
    np.testing.assert_allclose(scored("LIST")[0], [first, last], atol=1e-6)


@pytest.mark.source("graphcore/keras, data_adapter.py, _infer_steps")
def test_steps_are_those_of_a_replica():
    """20 mini-batches: 10 of each of two replicas, in launches of 5 steps, of 10, and of a step."""
    for steps, launches in ((5, 2), (10, 1), (40, 1), (1, 10)):
        assert scored("NONE", steps=steps)[2] == launches


def test_mini_batches_that_replicas_do_not_share_are_left_out():
    forget()
    with machine(), ipu.ipu_strategy.IPUStrategyV1().scope():
        used = configured(2)
        net = model(2)
        with pytest.warns(RuntimeWarning, match="9 mini-batches are dealt to 2 .* the last 1 of"):
            predictions = net.predict(data().take(9), verbose=0)
        assert (len(predictions), used.launches) == (8 * 16, 2)
        with pytest.raises(ValueError, match="the data has 1 mini-batches, and each of the 2 repl"):
            net.predict(data().take(1), verbose=0)
        with pytest.raises(ValueError, match="predict_on_batch has one batch, and the model runs"):
            model(1).predict_on_batch(X[:16])


@pytest.mark.parametrize(("ipus", "mapping", "replicas"), [
    (2, [0, 1], 1), (4, [0, 1], 2), (4, [0, 2], 1), (4, [2, 1], 1), (3, [0, 2], 1), (8, [0, 2], 2),
])
def test_a_pipeline_takes_a_power_of_two_of_ipus(ipus, mapping, replicas):
    with machine(), ipu.ipu_strategy.IPUStrategyV1().scope():
        configured(ipus)
        net = model(2)
        pipelined(2, device_mapping=mapping)(net)
        assert replicas_of(net) == replicas


def test_accumulations_take_whole_executions():
    with pytest.raises(RuntimeError, match=r"\(set to 2\) is not divisible by `grad.*` \(4\)"):
        fit(2, accumulating, steps=2)
