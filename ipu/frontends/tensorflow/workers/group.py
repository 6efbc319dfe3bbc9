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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32
from ipu.distributed.channel import Channel
from ipu.distributed.cluster import Cluster
from ipu.distributed.connect import connect
from ipu.distributed.handshake import compare
from ipu.distributed.local_transport import local_transports
from ipu.distributed.transport import Kind, StoppedError, at_step
from ipu.frontends.processes.ending import end_with_program
from ipu.frontends.processes.sums import Sums
from ipu.frontends.tensorflow.engine.machine import current
from ipu.frontends.tensorflow.engine.replica_set import Processes
from ipu.learn.address import CELLS
from ipu.machine.device import Device
from ipu.parallel.collectives import Summands
from ipu.parallel.orders import Order

__all__ = ["Workers", "cluster_of", "join"]

_FORMATS = {"float16": BINARY16, "float32": BINARY32, "bfloat16": BFLOAT16}


class Workers:
    """This process among those of a run.

    rank, size    which it is, and how many there are.
    order         of the additions over replicas that are parts of one program.
    """

    def __init__(self, sums: Sums, order: Order | None = None) -> None:
        self._sums, self._channel = sums, sums.channel
        #: The replicas of programs that span all workers.
        self.replica_set = Processes(self._channel, order or Order.AUTO)
        self.rank, self.size = self._channel.rank, self._channel.size
        #: Steps of a session's training, and at its last checkpoint.
        self.step: int | None = None
        self.saved: int | None = None
        self._calls = 0

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
        own = device.context(fmt).wrap(np.ascontiguousarray(x).astype(fmt.carrier))
        step, cell = divmod(self._calls, CELLS)
        self._calls += 1
        with self._telling_the_step():
            (total,) = self._sums.of([Summands([own], cell, name)], step)
        if mean:
            held = device.context(fmt).wrap(total.carrier)
            total = device.divide(held, float(self.size))
        return total.carrier.astype(x.dtype).reshape(x.shape)

    @contextmanager
    def _telling_the_step(self) -> Iterator[None]:
        """A worker that is lost inside is told with the step and the last checkpoint."""
        try:
            yield
        except StoppedError as stop:
            if self.step is None:
                raise
            saved = "there is no complete checkpoint"
            if self.saved is not None:
                saved = f"the last complete checkpoint is step {self.saved}"
            raise StoppedError(at_step(stop.reason, self.step, saved)) from None

    # Copies and comparisons ------------------------------------------------------------------

    def of_root(self, x: Any, name: str = "") -> Any:
        """The first worker's ndarray, on all; types and shapes are equal everywhere."""
        x = np.asarray(x, order="C")
        with self._telling_the_step():
            text = self._channel.broadcast(x.tobytes(), what=name)
        return np.frombuffer(text, x.dtype).reshape(x.shape)

    def texts(self, own: str, what: str) -> list[str]:
        """The text of each worker."""
        with self._telling_the_step():
            return [row.decode() for row in self._channel.gather(own.encode(), what)]

    def compare(self, lines: Sequence[str]) -> None:
        """Return when these lines are equal on all workers.

        Raises    JoinError, on every worker, with the first that differ.
        """
        compare(self._channel, lines)

    def check_equal(self, digest: str, step: int) -> None:
        """Return when the variables of all workers have this digest.

        Raises    StoppedError, on every worker, with both digests.
        """
        for rank, text in enumerate(self.texts(digest, "digests")):
            if text != digest:
                who = self._channel.transport.describe(rank)
                self._channel.stop(
                    Kind.FAILED, rank,
                    f"{who} has variables with digest {text[:12]}, not {digest[:12]}, "
                    f"after step {step}; they must be equal on all workers",
                )  # fmt: skip


def join(cluster: Cluster | None, plan: str) -> Workers:
    """Join the other workers of a cluster; without one this process is alone.

    plan      what must be equal on all workers, as lines of text, beside what the user chose
              outside of the program: policy, seed and the like.

    Raises    JoinError for a worker that does not answer, or is of another run.
    """
    cluster = cluster or Cluster()
    cluster = cluster.with_replicas(cluster.size)
    order = cluster.order or Order.TF_RING
    if cluster.size == 1:
        return Workers(Sums(Channel(local_transports(1)[0]), 1, Device, order), cluster.order)
    _check_protocol(cluster)
    lines = [plan, f"order: {order.value}", *current().choices.lines]
    channel = Channel(connect(cluster, "\n".join(lines)))
    end_with_program(channel)
    return Workers(Sums(channel, cluster.size, Device, order), cluster.order)


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
