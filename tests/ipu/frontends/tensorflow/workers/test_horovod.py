"""Ranks and collectives of one process, for tensors of both versions (law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.tensorflow.framework import session, tf

pytest.importorskip("mpi4py", reason="importing horovod needs MPI; the extra mpi brings it")

from ipu.frontends.tensorflow.workers import horovod as hvd


@pytest.fixture
def started(monkeypatch):
    """A run of one process, as poprun starts it."""
    hvd.shutdown()
    monkeypatch.setenv("POPDIST_NUM_INSTANCES", "1")
    monkeypatch.setenv("POPDIST_INSTANCE_INDEX", "0")
    monkeypatch.setenv("FPSIM_TRANSPORT", "local")
    monkeypatch.delenv("TF_CONFIG", raising=False)
    hvd.init()
    yield
    hvd.shutdown()


@pytest.mark.source("S1-27")
def test_one_process_is_the_root_of_all(started):
    assert (hvd.size(), hvd.rank(), hvd.local_size(), hvd.local_rank()) == (1, 0, 1, 0)
    assert hvd.allreduce([1.0, 2.0]).numpy().tolist() == [1, 2]
    assert hvd.broadcast([3.0], root_rank=0) == hvd.allgather([3.0])
    strategy = hvd.ipu_horovod_strategy.IPUHorovodStrategy()
    assert strategy.num_replicas_in_sync == 1
    with pytest.raises(ValueError, match="root_rank=1 is not a process"):
        hvd.broadcast(3.0, root_rank=1)
    variable = tf.Variable(2.0)
    hvd.broadcast_variables([variable], root_rank=0)
    assert float(variable) == 2


def test_nodes_of_tensorflow_1_do_so_too(started):
    with session() as opened:
        x = tf.constant([1.0, 2.0])
        w = tf.compat.v1.get_variable("w", initializer=3.0)
        opened.run(tf.compat.v1.global_variables_initializer())
        opened.run(hvd.broadcast_variables([w], 0))
        total, rows = hvd.allreduce(x, op=hvd.Sum), hvd.allgather(x)
        assert (total.shape, rows.shape.as_list()) == ([2], [None])
        assert [r.tolist() for r in opened.run([total, rows])] == [[1, 2], [1, 2]]
        with pytest.raises(ValueError, match="root_rank=1 is not a process"):
            opened.run(hvd.broadcast(x, 1))


def test_nothing_works_before_init():
    hvd.shutdown()
    for call in (hvd.size, lambda: hvd.allreduce(1.0),
                 hvd.ipu_horovod_strategy.IPUHorovodStrategy):
        with pytest.raises(ValueError, match=r"Horovod has not been initialized; use hvd.init"):
            call()
