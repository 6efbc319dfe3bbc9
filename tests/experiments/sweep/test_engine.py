"""Jobs on a cluster: outcomes with their numbers, a lost scheduler, large arguments (law)."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from ipu.experiments.sweep.cluster import ClusterRefusedError, DaskCluster
from ipu.experiments.sweep.engine import as_they_come
from tests.experiments.sweep import room

distributed = pytest.importorskip(
    "distributed", reason="needs the extra dask; run: make test-distributed"
)


def test_no_job_starts_nothing():
    assert list(as_they_come(operator.add, 1, [], [], DaskCluster("tcp://127.0.0.1:1"), "")) == []


def test_a_scheduler_by_its_address_runs_jobs_and_its_end_is_said(moody):
    """A large shared argument goes once, without Dask's warning."""
    moody()
    large = np.arange(3_000_000)  # 24 MB; Dask warns above 10
    with (
        room.on_the_workers(),
        distributed.LocalCluster(
            1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as local,
    ):
        cluster = DaskCluster(local.scheduler_address)
        jobs = [5, 7, 2]
        outcomes = as_they_come(operator.getitem, large, jobs, ["a", "b", "c"], cluster, "three")
        assert {jobs[n]: int(value) for n, value in outcomes} == {5: 5, 7: 7, 2: 2}
        outcomes = as_they_come(_wait, None, [0.0, 60.0], ["d", "e"], cluster, "two")
        assert next(outcomes) == (0, 0.0)
        local.close()
        with pytest.raises(ClusterRefusedError, match=r"^scheduler tcp://\S+ is gone"):
            next(outcomes)


def _wait(shared, seconds):
    import time

    time.sleep(seconds)
    return seconds
