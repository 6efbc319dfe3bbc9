"""Strategies: what optimisers inside of their scopes reduce, and in which order (law)."""

from __future__ import annotations

import types
import warnings

import numpy as np
import pytest

from ipu.frontends.tensorflow.engine.replica_set import ALONE
from ipu.frontends.tensorflow.settings.notes import forget
from ipu.frontends.tensorflow.workers.group import join
from ipu.frontends.tensorflow.workers.strategies import (
    IPUMultiWorkerStrategy,
    IPUMultiWorkerStrategyV1,
    _Strategy,
)
from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, session, tf

v1 = tf.compat.v1


class Twins:
    """Two workers with equal values: a sum is twice the value."""

    rank, size = 1, 2
    replica_set = ALONE

    def __init__(self):
        self.calls = []

    def reduced(self, x, *, mean, name):
        self.calls.append((name, mean))
        return x if mean else 2 * x


def resolver(**jobs):
    spec = tf.train.ClusterSpec(jobs)
    return types.SimpleNamespace(cluster_spec=lambda: spec, task_type="worker", task_id=0)


@pytest.mark.parametrize("jobs", [{}, {"worker": ["localhost:1"]}])
def test_one_worker_reads_everything(jobs):
    strategy = IPUMultiWorkerStrategy(resolver(**jobs))
    assert strategy.num_replicas_in_sync == 1
    context = strategy.input_context
    assert (context.num_input_pipelines, context.input_pipeline_id) == (1, 0)
    with strategy.scope() as inside:
        assert inside is strategy
    assert not strategy.variables_on_host
    assert IPUMultiWorkerStrategy is IPUMultiWorkerStrategyV1


def test_variables_on_host_are_said_once_to_stay_where_they_are():
    forget()
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        strategies = [_Strategy(Twins(), True) for _ in range(2)]
    assert [str(n.message).partition(" here")[0] for n in notes] == [
        "variables_on_host moves no variable"
    ]
    assert all(strategy.variables_on_host for strategy in strategies)


@pytest.mark.source("S1-02", "S1-03")
def test_each_worker_has_its_part_of_the_data():
    context = _Strategy(Twins(), False).input_context
    data = tf.data.Dataset.range(5).shard(context.num_input_pipelines, context.input_pipeline_id)
    assert list(data.as_numpy_iterator()) == [1, 3]
    assert context.num_replicas_in_sync == 2


def trained(strategy, in_scope):
    """Weights after a step of SGD at rate 1 with the gradients 1 and 3, in that order of layers."""
    with session() as opened:
        first, last = (v1.get_variable(name, initializer=0.0) for name in ("first", "last"))
        opened.run(v1.global_variables_initializer())
        optimizer = v1.train.GradientDescentOptimizer(1.0)
        gradients = [(tf.constant(1.0), first), (tf.constant(3.0), last)]
        with in_scope():
            opened.run(optimizer.apply_gradients(gradients))
        return opened.run([first, last])


@pytest.mark.source("S1-24")
@pytest.mark.parametrize(
    ("scope", "mean", "factor"), [("scope", False, 2), ("estimator_scope", True, 1)]
)
def test_gradients_are_reduced_the_latest_layer_first(scope, mean, factor):
    strategy = _Strategy(Twins(), False)
    assert trained(strategy, getattr(strategy, scope)) == [-1 * factor, -3 * factor]
    assert strategy.workers.calls == [("last", mean), ("first", mean)]
    strategy.workers.calls.clear()
    assert trained(strategy, lambda: session()) == [-1, -3]
    assert not strategy.workers.calls, "outside of a scope nothing is reduced"


def test_a_program_of_the_machine_reduces_on_the_host():
    strategy = _Strategy(Twins(), False)
    with machine(), session() as opened:
        configured()

        def step():
            w = v1.get_variable("w", initializer=4.0)
            return v1.train.GradientDescentOptimizer(0.25).minimize(w * w)

        done = strategy.run(ipu.ipu_compiler.compile, (step,))
        opened.run(v1.global_variables_initializer())
        opened.run(done)
        (w,) = opened.run(v1.global_variables())
    assert w == 4.0 - 0.25 * 16
    assert strategy.workers.calls == [("w", False)]


def test_values_are_reduced_in_both_versions():
    strategy = _Strategy(Twins(), False)
    op = tf.distribute.ReduceOp
    assert float(strategy.reduce(op.SUM, 3.0)) == 6
    assert float(strategy.reduce("MEAN", tf.constant(3.0), axis=None)) == 3
    with session() as opened:
        assert opened.run(strategy.reduce(op.SUM, tf.constant([1.0]))) == [2]
    with pytest.raises(ValueError, match="axis=0: a worker has one value"):
        strategy.reduce(op.SUM, 3.0, axis=0)
    assert strategy.experimental_run_v2(lambda x, y: x + y, (1,), {"y": 2}) == 3


def test_an_error_of_a_collective_is_the_one_that_a_session_raises():
    class Broken(Twins):
        def reduced(self, x, *, mean, name):
            raise KeyError("worker 1 is gone")

    strategy = _Strategy(Broken(), True)
    with session() as opened, pytest.raises(KeyError, match="worker 1 is gone"):
        opened.run(strategy.reduce("SUM", tf.constant(1.0)))


def test_alone_nothing_is_reduced():
    strategy = _Strategy(join(None, ""), True)
    x = tf.constant(1.0)
    assert strategy.reduce("SUM", x) is x
    np.testing.assert_array_equal(strategy.reduced_gradients([(x, tf.Variable(0.0))])[0][0], 1)
