"""PopTorch's options by poprun's settings (golden)."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; run: make test-torch")

from ipu.frontends.popdist.poptorch import Options


def test_without_poprun_they_are_poptorchs():
    options = Options()
    assert options.replication_factor == 1
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (0, 1)


def test_replicas_of_this_process_are_the_factor(monkeypatch):
    monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "4")
    assert Options().replication_factor == 4


def test_ipus_of_a_replica_must_be_popruns(monkeypatch):
    monkeypatch.setenv("POPDIST_NUM_IPUS_PER_REPLICA", "2")
    assert Options(ipus_per_replica=2).replication_factor == 1
    with pytest.raises(ValueError, match=r"ipus_per_replica=4 and poprun has .* 2; use one number"):
        Options(ipus_per_replica=4)
