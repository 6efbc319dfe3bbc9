"""Jobs on the workers of a cluster: outcomes as they come, whatever happens to workers.

Dask runs a job again when its worker is lost; what it returns is the same, as jobs are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from ipu.experiments.lab.progress import progress
from ipu.experiments.sweep.cluster import ClusterRefusedError, DaskCluster, connected

if TYPE_CHECKING:
    from distributed import Future

Shared = TypeVar("Shared")
Job = TypeVar("Job")
Returned = TypeVar("Returned")


class WorkersLostError(RuntimeError):
    """A job ended every worker that tried it; `workers` counts them."""

    def __init__(self, workers: int) -> None:
        super().__init__(f"{workers} workers ended while they ran the job")
        self.workers = workers


def as_they_come(
    function: Callable[[Shared, Job], Returned],
    shared: Shared,
    jobs: Sequence[Job],
    keys: Sequence[str],
    cluster: DaskCluster,
    label: str,
) -> Iterator[tuple[int, Returned | WorkersLostError]]:
    """(number of the job, function(shared, job)) in the order in which jobs finish, with a bar.

    shared    goes to the cluster once, whatever the number of jobs.
    keys      names of the jobs for the scheduler: equal keys are one job.

    Raises    ClusterRefusedError when the scheduler goes away; what came before stands.
              Whatever function raises.
    """
    from distributed import as_completed

    if not jobs:
        return
    with connected(cluster, len(jobs)) as client:
        with _large_messages():
            # A task, and no scattered data: those would be lost with the worker that holds them.
            common = client.submit(_same, shared, key=f"fpsim-shared-{uuid4().hex}")
            numbers = {
                client.submit(function, common, job, key=f"fpsim-{key}", pure=True): number
                for number, (job, key) in enumerate(zip(jobs, keys, strict=True))
            }
        finished = as_completed(list(numbers), loop=client.loop)
        for future in progress(finished, label, len(jobs)):
            yield numbers.pop(future), _returned(future, cluster)


def _same(shared: Shared) -> Shared:
    return shared


@contextmanager
def _large_messages() -> Iterator[None]:
    """Inside, Dask does not warn about a large argument; it is sent once."""
    import dask

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "4GiB"}):
        yield


def _returned(future: Future[Returned], cluster: DaskCluster) -> Returned | WorkersLostError:
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError

    try:
        returned: Returned = future.result()
        return returned
    except KilledWorker as error:
        return WorkersLostError(error.allowed_failures + 1)
    except (CancelledError, FutureCancelledError, OSError) as error:
        place = cluster.scheduler or "of this machine"
        raise ClusterRefusedError(
            f"scheduler {place} is gone ({str(error).splitlines()[0] or type(error).__name__})"
        ) from None
