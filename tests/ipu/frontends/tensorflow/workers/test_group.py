"""Workers of a run: sums in the ring's order, copies of root, clusters (law, golden)."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from ipu.frontends.tensorflow.workers.group import Workers, cluster_of, join
from ipu.machine.device import Device
from ipu.members.channel import Channel
from ipu.members.cluster import ClusterError
from ipu.members.local_transport import local_transports, run_local
from ipu.members.members import Members
from ipu.members.sums import ReplicaSums
from ipu.members.transport import JoinError, StoppedError
from ipu.plan.orders import Order
from tests.ipu.frontends.tensorflow.framework import tf

RNG = np.random.default_rng(0)
TF_CONFIG = tf.distribute.cluster_resolver.TFConfigClusterResolver


def together(size, work):
    """What work(workers) returns on each of so many workers, as threads."""

    def run(transport):
        members = Members(Channel(transport))
        return work(Workers(members, ReplicaSums(members.channel, size, Device, Order.TF_RING)))

    return run_local(size, run)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_two_workers_add_once_and_divide_once(dtype):
    parts = RNG.normal(size=(2, 3, 5)).astype(dtype)
    rows = together(2, lambda w: (w.reduced(parts[w.rank], mean=False),
                                  w.reduced(parts[w.rank], mean=True)))
    total = parts[0] + parts[1]
    for sums, means in rows:
        np.testing.assert_array_equal(sums, total)
        np.testing.assert_array_equal(means, total / dtype(2))
        assert sums.dtype == dtype


def test_three_workers_have_equal_bits_in_one_order():
    parts = RNG.normal(size=(3, 50)).astype(np.float16)
    first, *others = together(3, lambda w: w.reduced(parts[w.rank], mean=True))
    for other in others:
        np.testing.assert_array_equal(first, other)
    np.testing.assert_allclose(first, parts.astype(float).mean(0), atol=2e-3)


def test_one_worker_keeps_what_it_has():
    alone = join(None, "plan")
    assert (alone.rank, alone.size) == (0, 1)
    x = np.float64([1.0])
    assert alone.reduced(x, mean=True) is x
    np.testing.assert_array_equal(alone.of_root(np.int64(7)), 7)
    alone.compare(["a: 1"])


def test_types_without_an_addition_are_refused():
    with pytest.raises(TypeError, match="a sum of float64 over workers is no operation"):
        together(2, lambda w: w.reduced(np.float64([1.0]), mean=False))


def test_roots_values_are_those_of_all():
    for row in together(2, lambda w: w.of_root(np.float32([[w.rank, 5]]))):
        np.testing.assert_array_equal(row, [[0, 5]])
    assert together(2, lambda w: w.of_root(np.int64(w.rank)).shape) == [(), ()]


def test_what_differs_is_told_with_both_values():
    with pytest.raises(JoinError, match=r"worker . has v: ., worker . has v: .; start all"):
        together(2, lambda w: w.compare([f"v: {w.rank}"]))
    together(2, lambda w: w.check_equal("abc", 3))
    with pytest.raises(StoppedError, match=r"digest \w+, worker 0 \w+, after step 3; they must be"):
        together(2, lambda w: w.check_equal("ab"[w.rank] * 64, 3))


# Clusters -----------------------------------------------------------------------------------------

WORKERS = ["127.0.0.1:3737", "127.0.0.1:3738"]


def config(cluster=None, **task):
    named = {"type": "worker", "index": 0} | task
    return json.dumps({"cluster": {"worker": WORKERS} if cluster is None else cluster,
                       "task": named})


@pytest.mark.source("S1-12")
def test_a_resolver_reads_tf_config():
    cluster = cluster_of(TF_CONFIG(), {"TF_CONFIG": config(index=1)})
    assert (cluster.rank, cluster.size, cluster.addresses) == (1, 2, tuple(WORKERS))
    assert cluster_of(TF_CONFIG(), {}) is None


def test_another_resolver_tells_its_own_cluster():
    simple = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": WORKERS}), task_type="worker", task_id=1
    )
    cluster = cluster_of(simple, {})
    assert (cluster.rank, cluster.addresses) == (1, tuple(WORKERS))
    empty = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec({}))
    assert cluster_of(empty, {}) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "TF_CONFIG is no JSON"), ("{}", "no key 'cluster'"),
        (config({}), "no list 'worker' in 'cluster'"),
        (config({"worker": WORKERS, "evaluator": ["127.0.0.1:1"]}), "no evaluators"),
        (config(type="evaluator"), "task type 'evaluator'"), (config(index=2), "task index 2"),
        (config({"worker": [WORKERS[0]] * 2}), "more than once"),
        (config({"worker": ["localhost"]}), "address 'localhost' is not host:port"),
    ],
)
def test_what_is_no_cluster_has_a_sentence_with_an_example(text, message):
    with pytest.raises(ClusterError, match=message) as error:
        cluster_of(TF_CONFIG(), {"TF_CONFIG": text})
    assert '"worker": ["127.0.0.1:3737", "127.0.0.1:3738"]' in str(error.value)


def test_stubs_are_built_before_tensorflow(monkeypatch):
    pytest.importorskip("grpc_tools")
    monkeypatch.delitem(sys.modules, "grpc_tools._protoc_compiler", raising=False)
    cluster = cluster_of(TF_CONFIG(), {"TF_CONFIG": config()})
    with pytest.raises(RuntimeError, match="TF_CONFIG has to be set, and ipu"):
        join(cluster, "plan")


@pytest.mark.parametrize(
    ("step", "saved", "end"),
    [(None, None, ""), (4, None, r" \(step 4\); there is no checkpoint"),
     (4, 3, r" \(step 4\); the last checkpoint is step 3")],
)
def test_a_worker_that_is_lost_is_told_with_step_and_checkpoint(step, saved, end):
    first, second = local_transports(2)
    second.close()
    members = Members(Channel(first))
    workers = Workers(members, ReplicaSums(members.channel, 2, Device, Order.TF_RING))
    workers.step, members.saved = step, saved
    for call in (lambda: workers.reduced(np.float32([1]), mean=True),
                 lambda: workers.texts("digest", "digests")):
        with pytest.raises(StoppedError, match=f"^worker 1 is gone{end}$"):
            call()
