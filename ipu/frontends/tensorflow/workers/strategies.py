"""`IPUMultiWorkerStrategy` and `IPUHorovodStrategy` for one worker.

With one worker there is nothing to exchange: gradients are what they are. Programs of several
workers are refused here.

Source    graphcore/tensorflow, tensorflow/python/ipu/ipu_multi_worker_strategy.py,
          horovod/ipu_horovod_strategy.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

__all__ = ["IPUHorovodStrategy", "IPUMultiWorkerStrategy", "IPUMultiWorkerStrategyV1", "refuse"]


class _OneWorker:
    """A strategy of one worker."""

    num_replicas_in_sync = 1

    @property
    def input_context(self) -> Any:
        """Which part of a data set this worker reads: all of it."""
        return tf.distribute.InputContext(
            num_input_pipelines=1, input_pipeline_id=0, num_replicas_in_sync=1
        )

    @contextmanager
    def scope(self) -> Iterator[_OneWorker]:
        """Variables made inside are this worker's."""
        yield self


def refuse(workers: int) -> None:
    """Refuse more than one worker.

    Raises    NotImplementedError.
    """
    if workers > 1:
        raise NotImplementedError(
            f"{workers} workers: programs of several workers are not built here; give the "
            "cluster one worker"
        )


class IPUMultiWorkerStrategyV1(_OneWorker):
    """The workers of a cluster; one here.

    variables_on_host    where variables and the optimiser's state lie; no bit changes.
    """

    def __init__(
        self, cluster_resolver: Any, ipu_device: str = "/device:IPU:0",
        variables_on_host: bool = False,
    ) -> None:  # fmt: skip
        jobs = cluster_resolver.cluster_spec().as_dict()
        refuse(sum(len(jobs.get(job, ())) for job in ("chief", "worker")))
        self.cluster_resolver = cluster_resolver


#: Its name of earlier releases.
IPUMultiWorkerStrategy = IPUMultiWorkerStrategyV1


class IPUHorovodStrategy(_OneWorker):
    """The processes of Horovod; one here."""

    def __init__(self, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False) -> None:
        pass
