"""Strategies of one worker (law)."""

from __future__ import annotations

import types

import pytest

from ipu.frontends.tensorflow.workers.strategies import (
    IPUHorovodStrategy,
    IPUMultiWorkerStrategy,
)
from tests.ipu.frontends.tensorflow.framework import tf


def resolver(**jobs):
    spec = tf.train.ClusterSpec(jobs)
    return types.SimpleNamespace(cluster_spec=lambda: spec)


@pytest.mark.parametrize("jobs", [{}, {"worker": ["localhost:1"]}])
def test_one_worker_reads_everything(jobs):
    strategy = IPUMultiWorkerStrategy(resolver(**jobs), variables_on_host=True)
    assert strategy.num_replicas_in_sync == 1
    context = strategy.input_context
    assert (context.num_input_pipelines, context.input_pipeline_id) == (1, 0)
    with strategy.scope() as inside:
        assert inside is strategy


def test_several_workers_are_refused():
    with pytest.raises(NotImplementedError, match=r"2 workers: .* not built here"):
        IPUMultiWorkerStrategy(resolver(chief=["a:1"], worker=["b:1"]))
    assert IPUHorovodStrategy(variables_on_host=True).num_replicas_in_sync == 1
