"""Sums and means over replicas (golden: docs/semantics.md §9; law)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, session, tf
from tests.ipu.frontends.tensorflow.training.lines import expected, fit

v1 = tf.compat.v1


def reduced(rows, reduce):
    """What each replica gets; row r is replica r's tensor."""
    with machine(), session() as run:
        configured(ipus=len(rows))
        data = tf.data.Dataset.from_tensor_slices(rows)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data)
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        done = ipu.ipu_compiler.compile(
            lambda: ipu.loops.repeat(1, lambda x: outfeed.enqueue(reduce(x)), [], infeed)
        )
        results = outfeed.dequeue()
        run.run(infeed.initializer)
        run.run(done)
        actual = run.run(results)[0]
        run.run(infeed.deleter)
    return actual


CROSS = ipu.cross_replica_ops


@pytest.mark.source("docs/semantics.md §9; poplibs, meet-in-the-middle ring")
def test_four_replicas_add_in_the_order_of_their_ring():
    rows = np.full((4, 4), 2.0**-11, np.float16)
    rows[0] = 1
    actual = reduced(rows, CROSS.cross_replica_sum)
    assert actual[0].view(np.uint16).tolist() == [0x3C02, 0x3C00, 0x3C00, 0x3C02]
    assert (actual == actual[0]).all()


def test_means_and_groups_of_neighbours():
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.testing.assert_array_equal(reduced(rows, CROSS.cross_replica_mean), [[3, 4]] * 4)
    pairs = reduced(rows, lambda x: CROSS.cross_replica_sum(x, replica_group_size=2))
    np.testing.assert_array_equal(pairs, [[2, 4], [2, 4], [10, 12], [10, 12]])
    with pytest.raises(ValueError, match="replica_group_size=3 does not divide the 4 replicas"):
        reduced(rows, lambda x: CROSS.cross_replica_sum(x, replica_group_size=3))
    with pytest.raises(ValueError, match="replica_group_size=0 is not a number"):
        CROSS.cross_replica_sum(tf.constant(1.0), 0)


@pytest.mark.source("S4-14")
def test_only_what_replicas_do_alike_is_stochastic():
    """At a rate of 0 losses show the forward pass alone; at another, weights show the update."""
    kinds = ipu.config.StochasticRoundingBehaviour

    def run(rate):
        optimiser = lambda: v1.train.GradientDescentOptimizer(rate)  # noqa: E731
        return [fit(optimiser, dtype=tf.float16, esr=kind) for kind in kinds]

    (off, _), (on, _), (only, _) = run(0.0)
    np.testing.assert_array_equal(off, only)
    assert (off != on).any()
    (_, off), _, (_, only) = run(0.05)
    assert (off[0] != only[0]).any()


@pytest.mark.source("S0-29", "X-10")
@pytest.mark.parametrize("esr", [False, True])
def test_replicas_keep_equal_weights_after_every_step(esr):
    dtype = tf.float16 if esr else tf.float32
    losses, weights = fit(
        lambda: ipu.optimizers.CrossReplicaOptimizer(v1.train.MomentumOptimizer(0.05, 0.9)),
        ipus=2, dtype=dtype, esr=esr,
    )
    np.testing.assert_array_equal(weights[:, 0], weights[:, 1])
    assert (losses[:, 0] != losses[:, 1]).any(), "replicas must see different batches"
    if not esr:
        reference = expected(1, "SUM", replicas=2)
        np.testing.assert_allclose(weights[:, 0], reference, rtol=0, atol=2e-6)
