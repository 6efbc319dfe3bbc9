"""PopDist's functions read what poprun sets (golden)."""

from __future__ import annotations

import pytest

from ipu.frontends import popdist

#: Instance 1 of 2, with 6 replicas of 4 IPUs.
SETTINGS = {
    "POPDIST_NUM_TOTAL_REPLICAS": "6",
    "POPDIST_NUM_LOCAL_REPLICAS": "3",
    "POPDIST_REPLICA_INDEX_OFFSET": "3",
    "POPDIST_NUM_INSTANCES": "2",
    "POPDIST_INSTANCE_INDEX": "1",
    "POPDIST_LOCAL_INSTANCE_INDEX": "0",
    "POPDIST_NUM_IPUS_PER_REPLICA": "4",
}


@pytest.fixture
def poprun(monkeypatch):
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)


def read():
    popdist.init()
    return (
        popdist.isPopdistEnvSet(), popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(),
        popdist.getReplicaIndexOffset(), popdist.getNumInstances(), popdist.getInstanceIndex(),
        popdist.getLocalInstanceIndex(), popdist.getNumIpusPerReplica(), popdist.getDeviceId(),
    )


def test_without_poprun_one_process_has_one_replica(monkeypatch):
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    assert read() == (False, 1, 1, 0, 1, 0, 0, 1, 0)


@pytest.mark.usefixtures("poprun")
def test_under_poprun_a_process_knows_its_replicas():
    assert read() == (True, 6, 3, 3, 2, 1, 0, 4, 12)


@pytest.mark.usefixtures("poprun")
def test_ipus_of_a_replica_are_compared():
    assert popdist.checkNumIpusPerReplica(4)
    assert not popdist.checkNumIpusPerReplica(2)
    assert popdist.getDeviceId(2) == 6


@pytest.mark.parametrize("text", ["", "two", "-1", "1.5", "²"])
def test_a_variable_that_is_no_number_is_named(monkeypatch, text):
    monkeypatch.setenv("POPDIST_NUM_INSTANCES", text)
    with pytest.raises(ValueError, match=r"POPDIST_NUM_INSTANCES=.* start the program by fpsim"):
        popdist.getNumInstances()
