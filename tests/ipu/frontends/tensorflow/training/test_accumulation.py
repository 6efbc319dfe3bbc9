"""Optimisers that accumulate beside binary64, what they refuse (differential, golden, law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.frontends.tensorflow.settings.notes import forget
from tests.ipu.frontends.tensorflow.framework import ipu, session, tf
from tests.ipu.frontends.tensorflow.training.lines import expected, fit

v1 = tf.compat.v1
V2 = ipu.optimizers.GradientAccumulationOptimizerV2


def momentum():
    return v1.train.MomentumOptimizer(0.05, 0.9)


@pytest.mark.source("S0-57", "X-06")
@pytest.mark.parametrize("method", ["SUM", "MEAN", "RUNNING_MEAN"])
def test_one_update_follows_four_mini_batches(method):
    _, weights = fit(lambda: V2(momentum(), 4, reduction_method=method))
    np.testing.assert_allclose(weights, expected(4, method), rtol=0, atol=2e-6)
    changed = [n for n in range(1, 16) if (weights[n] != weights[n - 1]).any()]
    assert changed == [3, 7, 11, 15][: len(changed)]


@pytest.mark.source("S0-57")
def test_the_older_optimiser_sums_the_same():
    _, weights = fit(lambda: V2(momentum(), 4))
    _, older = fit(lambda: ipu.optimizers.GradientAccumulationOptimizer(momentum(), 4))
    np.testing.assert_array_equal(weights, older)


@pytest.mark.source("S0-57")
@pytest.mark.parametrize(
    "name",
    ["CrossReplicaGradientAccumulationOptimizer", "CrossReplicaGradientAccumulationOptimizerV2"],
)
def test_replicas_average_what_they_accumulated(name):
    wrap = getattr(ipu.optimizers, name)
    _, weights = fit(lambda: wrap(momentum(), 4), ipus=2)
    assert weights.shape == (16, 2, 3, 1)
    np.testing.assert_array_equal(weights[:, 0], weights[:, 1])
    reference = expected(4, "SUM", replicas=2)
    np.testing.assert_allclose(weights[:, 0], reference, rtol=0, atol=2e-6)


def test_half_gradients_accumulate_in_binary32_where_dtype_says_so():
    """A standard optimiser then refuses them; one that casts takes them."""
    sentence = "Op has type float32 that does not match type float16 of argument 'var'"
    with pytest.raises(TypeError, match=sentence):
        fit(lambda: V2(momentum(), 4, dtype=tf.float32), dtype=tf.float16)

    class Casts(v1.train.GradientDescentOptimizer):
        def apply_gradients(self, pairs, *rest, **named):
            kinds.update(g.dtype for g, _ in pairs)
            cast = [(tf.cast(g, v.dtype), v) for g, v in pairs]
            return super().apply_gradients(cast, *rest, **named)

    kinds = set()
    _, weights = fit(lambda: V2(Casts(0.05), 4, dtype=lambda v: tf.float32), dtype=tf.float16)
    assert kinds == {tf.float32}
    assert weights.dtype == np.float16
    assert weights[-1].any()


@pytest.mark.source("graphcore/tensorflow, gradient_accumulation_verifier.cc")
def test_a_loop_must_hold_whole_updates():
    sentence = "operation with 4 number of mini batches inside a loop with 10 iterations"
    with pytest.raises(tf.errors.FailedPreconditionError, match=sentence):
        fit(lambda: V2(momentum(), 4), iterations=10)


def test_what_an_optimiser_is_not_made_with():
    with pytest.raises(ValueError, match="num_mini_batches must be a positive number"):
        V2(momentum(), 0)
    for count in (2.5, True, None):
        with pytest.raises(TypeError, match=f"num_mini_batches={count} is not an integer"):
            V2(momentum(), count)
    with pytest.raises(ValueError, match="Cannot parse 'median'"):
        V2(momentum(), 2, reduction_method="median")
    with pytest.raises(ValueError, match="the optimizer state must be offloaded"):
        V2(momentum(), 2, False, True)
    older = ipu.optimizers.GradientAccumulationOptimizer
    with pytest.raises(ValueError, match="opt=AdamOptimizer: GradientAccumulationOptimizer supp"):
        older(v1.train.AdamOptimizer(), 2)
    older(v1.train.AdamOptimizer(), 2, verify_usage=False)
    forget()
    with pytest.warns(RuntimeWarning, match="changes no bit"):
        V2(momentum(), 2, offload_weight_update_variables=True)


@pytest.mark.source("S0-58")
def test_outside_of_a_loop_nothing_accumulates():
    with session():
        w = v1.get_variable("w", [1], tf.float32)
        with pytest.raises(tf.errors.FailedPreconditionError, match="not inside a training loop"):
            V2(momentum(), 2).minimize(w * 2.0, var_list=[w])
