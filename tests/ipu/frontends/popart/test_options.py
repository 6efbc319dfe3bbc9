"""Session options: the document's listing on two replicas, refusals (golden, law)."""

from __future__ import annotations

import pytest

from ipu.frontends import popart, popdist
from ipu.frontends.popdist.popart import configureSessionOptions
from ipu.plan.memory import StageFigures


@pytest.fixture
def of_poprun(monkeypatch):
    monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "2")
    monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", "4")
    monkeypatch.setenv("POPDIST_NUM_INSTANCES", "2")
    monkeypatch.setenv("POPDIST_REPLICA_INDEX_OFFSET", "2")


@pytest.mark.source("S3-16", "S3-36", "S3-37")
def test_the_documents_listing_shards_the_state_above_its_threshold(of_poprun):
    opts = popart.SessionOptions()
    configureSessionOptions(opts)
    n = popdist.getNumLocalReplicas()
    settings = opts.optimizerStateTensorLocationSettings
    settings.minElementsForReplicatedTensorSharding = n
    settings.location.replicatedTensorSharding = popart.ReplicatedTensorSharding.On
    assert (opts.replicatedGraphCount, opts.globalReplicaOffset) == (2, 2)
    plan = opts.plan([abs])
    assert (plan.replicas, plan.shard_state, plan.shard_minimum) == (4, True, 2)
    assert plan.is_sharded(2)
    assert not plan.is_sharded(1)
    figures = StageFigures(state_bytes=4 * 64 + 4, state_tensors=(4 * 64, 4))
    assert figures.state_in(plan) == (4 * 16 + 4, 0)


@pytest.mark.source("S3-37")
def test_below_the_default_threshold_nothing_is_sharded(of_poprun):
    opts = popart.SessionOptions()
    configureSessionOptions(opts)
    place = opts.optimizerStateTensorLocationSettings.location
    place.replicatedTensorSharding = popart.ReplicatedTensorSharding.On
    plan = opts.plan([abs])
    assert not plan.is_sharded(8191)
    assert plan.is_sharded(8192)


@pytest.mark.source("S3-21")
def test_pipelines_depths_and_places_are_the_plans():
    opts = popart.SessionOptions()
    opts.enablePipelining = opts.enableGradientAccumulation = True
    opts.accumulationFactor, opts.defaultPrefetchBufferingDepth = 8, 3
    opts.weightTensorLocationSettings.location.storage = popart.TensorStorage.OffChip
    plan = opts.plan([abs, abs])
    assert (str(plan.schedule.value), plan.count, plan.prefetch) == ("popart", 8, 3)
    assert plan.offloaded == {"weights"}
    assert popart.SessionOptions().plan([abs, abs]).prefetch == 1


def test_what_is_no_option_is_refused_and_nothing_changes():
    opts = popart.SessionOptions()
    with pytest.raises(AttributeError, match=r"no replicatedGraphcount; did you mean replicatedG"):
        opts.replicatedGraphcount = 2
    with pytest.raises(TypeError, match="replicatedGraphCount='2' is no int"):
        opts.replicatedGraphCount = "2"
    with pytest.raises(TypeError, match=r"options=1 is no popart\.SessionOptions"):
        configureSessionOptions(1)
    assert opts.replicatedGraphCount == 1
    opts.enableReplicatedGraphs, opts.enableDistributedReplicatedGraphs = True, True
    opts.replicatedGraphCount, opts.globalReplicationFactor = 2, 3
    with pytest.raises(ValueError, match="globalReplicationFactor=3 is no multiple of"):
        opts.plan([abs])
