"""Workers of a TensorFlow program: what their strategies do together.

Sums are the simulated machine's (`ipu.frontends.processes`), in TensorFlow's ring order unless the
run names another one; the mean is the sum, then one division by the number of workers. A transport
carries codes, and only those.

Source    graphcore/tensorflow, tensorflow/python/ipu/ipu_multi_worker_strategy.py; TensorFlow's
          RingReducer (order of the sum, final division).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32
from ipu import ops
from ipu.frontends.tensorflow.engine.current import current
from ipu.frontends.tensorflow.engine.listing import list_to
from ipu.frontends.tensorflow.engine.replica_set import ReplicaProcesses
from ipu.learn.address import CELLS
from ipu.machine.device import Device
from ipu.members.cluster import Cluster
from ipu.members.members import Meeting, Members
from ipu.members.members import join as join_cluster
from ipu.members.sums import ReplicaSums
from ipu.plan.collectives import Summands
from ipu.plan.orders import Order

__all__ = ["Workers", "cluster_of", "join"]

_FORMATS = {"float16": BINARY16, "float32": BINARY32, "bfloat16": BFLOAT16}


class Workers:
    """This process among those of a run.

    rank, size    which it is, and how many there are.
    order         of the additions over replicas that are parts of one program.
    """

    def __init__(self, members: Members, sums: ReplicaSums, order: Order | None = None) -> None:
        self._sums, self.members = sums, members
        #: The replicas of programs that span all workers.
        self.replica_set = ReplicaProcesses(members, order or Order.AUTO)
        self.rank, self.size = members.rank, members.size
        #: Steps of a session's training.
        self.step: int | None = None
        self._calls = 0
        list_to(members.program if self.size > 1 else None)

    # Sums -----------------------------------------------------------------------------------

    def reduced(self, x: Any, *, mean: bool, name: str = "") -> Any:
        """The sum or mean of an ndarray over all workers.

        Rounding  each addition once in the array's format, in the order of the run; the mean is
                  then divided once.
        Raises    TypeError for types that the machine cannot add; StoppedError where another
                  worker is gone.
        """
        x = np.asarray(x)
        if self.size == 1:
            return x
        fmt = _FORMATS.get(x.dtype.name)
        if fmt is None:
            raise TypeError(f"a sum of {x.dtype} over workers is no operation of the machine")
        device = self._sums.devices[self.rank]
        array = device.context(fmt).wrap(np.ascontiguousarray(x).astype(fmt.carrier))
        step, cell = divmod(self._calls, CELLS)
        self._calls += 1
        with self._telling_the_step():
            self.members.compare_programs(Meeting(f"the sum of {name}", self._calls))
            (total,) = self._sums.of([Summands([array], cell, name)], step)
        if mean:
            held = device.context(fmt).wrap(total.carrier)
            total = ops.divide.value(device, held, float(self.size))
        return total.carrier.astype(x.dtype).reshape(x.shape)

    def _telling_the_step(self) -> AbstractContextManager[None]:
        """A worker that is lost inside is told with the step and the last checkpoint."""
        return self.members.telling(lambda: self.step)

    # Copies and comparisons ------------------------------------------------------------------

    def of_root(self, x: Any, name: str = "") -> NDArray[Any]:
        """The first worker's ndarray, on all; types and shapes are equal everywhere."""
        x = np.asarray(x, order="C")
        with self._telling_the_step():
            text = self.members.root(x.tobytes(), name)
        return np.frombuffer(text, x.dtype).reshape(x.shape)

    def texts(self, text: str, what: str) -> list[str]:
        """The text of each worker."""
        with self._telling_the_step():
            return [row.decode() for row in self.members.channel.gather(text.encode(), what)]

    def compare(self, lines: Sequence[str]) -> None:
        """Return when these lines are equal on all workers.

        Raises    JoinError, on every worker, with the first that differ.
        """
        self.members.compare(lines)

    def check_equal(self, digest: str, step: int) -> None:
        """Return when the variables of all workers have this digest.

        Raises    StoppedError, on every worker, with both digests.
        """
        self.members.check("variables", digest, step)


def join(cluster: Cluster | None, plan: str) -> Workers:
    """Join the other workers of a cluster; without one this process is alone.

    plan      what must be equal on all workers, as lines of text, beside what the user chose
              outside of the program: policy, seed and the like.

    Raises    JoinError for a worker that does not answer, or is of another run.
    """
    cluster = cluster or Cluster()
    cluster = cluster.with_replicas(cluster.size)
    order = cluster.order or Order.TF_RING
    if cluster.size > 1:
        _check_protocol(cluster)
    lines = [plan, f"order: {order.value}", *current().choices.lines]
    members = join_cluster(cluster, lines)
    sums = ReplicaSums(members.channel, cluster.size, Device, order)
    return Workers(members, sums, cluster.order)


def _check_protocol(cluster: Cluster) -> None:
    """Refuse to build gRPC's stubs after TensorFlow, whose libraries their compiler crashes with.

    Raises    RuntimeError.
    """
    compiler = "grpc_tools._protoc_compiler"
    if cluster.transport == "grpc" and find_spec("grpc_tools") and compiler not in sys.modules:
        raise RuntimeError(
            "several workers over gRPC: TF_CONFIG has to be set, and ipu.frontends.tensorflow "
            "imported, before tensorflow is; start the program with: fpsim tf PROGRAM.py"
        )


def cluster_of(resolver: Any, environment: Mapping[str, str]) -> Cluster | None:
    """The cluster of one of TensorFlow's resolvers: that of TF_CONFIG, if it reads it.

    Raises    ClusterError for what is no cluster, with an example.
    """
    if type(resolver).__name__ == "TFConfigClusterResolver":
        return Cluster.from_environment(environment)
    task = {"type": resolver.task_type or "worker", "index": resolver.task_id or 0}
    jobs = resolver.cluster_spec().as_dict()
    if not jobs:
        return None
    config = json.dumps({"cluster": jobs, "task": task})
    return Cluster.from_environment({**environment, "TF_CONFIG": config})
