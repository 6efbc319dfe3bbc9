"""Ranks and collectives of one process (law)."""

from __future__ import annotations

import pytest

from ipu.frontends.tensorflow.workers import horovod as hvd


def test_one_process_is_the_root_of_all():
    hvd.shutdown()
    with pytest.raises(ValueError, match=r"Horovod has not been initialized; use hvd.init"):
        hvd.size()
    hvd.init()
    assert (hvd.size(), hvd.rank(), hvd.local_size(), hvd.local_rank()) == (1, 0, 1, 0)
    assert hvd.allreduce([1.0, 2.0]).numpy().tolist() == [1, 2]
    assert hvd.broadcast(3.0, root_rank=0) == hvd.allgather(3.0)
    with pytest.raises(ValueError, match="root_rank=1 is not a process"):
        hvd.broadcast(3.0, root_rank=1)
    hvd.shutdown()


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(NotImplementedError, match="2 workers"):
        hvd.init()
