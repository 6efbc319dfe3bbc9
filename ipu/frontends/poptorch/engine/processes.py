"""Processes that train one model: poprun deals the replicas, each process calls with its samples.

Process p of P has the replicas p·L … p·L + L - 1, L = replicationFactor. Their gradients are summed
with the additions, the addresses and the order of one process with all replicas, so weights are
those of it. Random bits of a replica follow its number among all.

weights      and buffers are the first process's when a training is compiled; trained parameters and
             slots are compared after the first update, after every `CHECK_EVERY` updates, and at
             the end of the program.
buffers      are each replica's own afterwards, as moving statistics.
accounts     of memory and cycles are of this process's plan.

Source    docs/semantics.md §2; PopDist and PopRun user guide.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence

import torch
from torch.utils._python_dispatch import _disable_current_modes

from fpsim.array import Array
from ipu.frontends.poptorch.categories import MPI_NAMES
from ipu.frontends.poptorch.engine.gradients import ReplicaAdditions, twin
from ipu.frontends.poptorch.engine.machine import PoptorchMachine
from ipu.frontends.poptorch.options import Options
from ipu.frontends.torch.program import settings_of
from ipu.frontends.torch.replicas.several import SeveralReplicas as Peers
from ipu.frontends.torch.session import Session
from ipu.learn.loss_scale.histogram import EdgeHistogram
from ipu.members.cluster import Cluster
from ipu.members.ending import before_end
from ipu.members.members import END, Meeting, Members
from ipu.members.members import join as join_cluster
from ipu.members.sums import ReplicaSums
from ipu.plan.collectives import Summands
from ipu.plan.orders import Order, check_order

__all__ = ["CHECK_EVERY", "PoptorchProcesses", "ProcessAdditions", "join"]

#: Updates from one comparison of the weights to the next.
CHECK_EVERY = 100

_joined: Members | None = None


class PoptorchProcesses:
    """This process among those that train a model.

    local        replicas of each; total: of all.
    first        the first replica of this process.
    order        of the additions; None: the plan's.
    """

    def __init__(self, members: Members, local: int, order: Order | None = None) -> None:
        self.members, self.local, self.order = members, local, order
        self.total, self.first = local * members.size, local * members.rank
        if order is not None:
            check_order(order, self.total)
        #: What was trained since the last comparison, and the updates so far.
        self._trained_since: tuple[list[torch.Tensor], int] | None = None
        self._awaits_end = False

    # Before the first update ------------------------------------------------------------------

    def start(
        self, model: torch.nn.Module, lines: Iterable[str], session: Session, *, fresh: bool
    ) -> None:
        """Compare what is built; a fresh model takes the first process's weights and buffers.

        Raises    JoinError, on every process, with the first lines that differ.
        """
        tensors = [*model.named_parameters(), *model.named_buffers()]
        kinds = [f"{name}: {x.dtype} {tuple(x.shape)}" for name, x in tensors]
        self.members.compare([f"replicas of a process: {self.local}", *lines, *kinds])
        self.members.compare_programs(Meeting("the first call", session.step))
        if isinstance(session.replicas, Peers):
            session.replicas.know(model.parameters())
        if not fresh:
            return
        with _disable_current_modes(), torch.no_grad():
            for name, x in tensors:
                sent = self.members.root(_bytes(x), name)
                flat = torch.frombuffer(bytearray(sent), dtype=x.dtype) if sent else x.flatten()
                x.copy_(flat.reshape(x.shape))

    # Updates ----------------------------------------------------------------------------------

    def meet(self, parameters: Sequence[str], step: int) -> None:
        """Return when all processes have gradients of the same parameters in this step.

        Raises    StoppedError, on every process, where one is elsewhere or at its end.
        """
        self.members.agree(Meeting("the gradients", step), parameters)

    def check(self, tensors: Iterable[torch.Tensor], step: int) -> None:
        """Compare trained parameters and slots of all processes, now and then and at the end.

        step    updates that were made.

        Raises    StoppedError, on every process, where they differ.
        """
        if not self._awaits_end:
            self._awaits_end = True
            before_end(self.members.channel, self._check_end)
        self._trained_since = list(tensors), step
        if step == 1 or step % CHECK_EVERY == 0:
            self._compare("weights")

    def _check_end(self) -> None:
        """The program has come to its end."""
        if self._trained_since is not None:
            self._compare(END)

    def _compare(self, place: str) -> None:
        """Compare what was trained since the last comparison."""
        assert self._trained_since is not None
        tensors, step = self._trained_since
        self._trained_since = None
        total = hashlib.sha256()
        with _disable_current_modes(), torch.no_grad():
            for x in tensors:
                total.update(_bytes(x))
        self.members.check("weights", total.hexdigest(), step, place)

    def add(self, histogram: EdgeHistogram) -> None:
        """A statistic of this process's gradients becomes that of all."""
        text = f"{histogram.upper} {histogram.lower}".encode()
        rows = self.members.channel.gather(text, "a histogram")
        counts = [tuple(map(int, row.split())) for row in rows]
        histogram.upper = sum(upper for upper, _ in counts)
        histogram.lower = sum(lower for _, lower in counts)


class ProcessAdditions(ReplicaAdditions):
    """Sums over the replicas of several processes."""

    def __init__(
        self, machine: PoptorchMachine, processes: PoptorchProcesses, order: Order | str
    ) -> None:
        super().__init__(machine, 1)
        self._sums = ReplicaSums(
            processes.members.channel, processes.total, lambda: twin(machine.device),
            processes.order or order,
        )

    def sum(self, gradients: Sequence[Array], variable: int, order: Order | str) -> Array:
        """The sum over all replicas, on the model's device; its order is that of the run."""
        device = self._machine.device
        for stand_in in self._sums.devices:
            stand_in.control = device.control
        jobs = [Summands(gradients, variable, f"parameter {variable}")]
        (total,) = self._sums.of(jobs, self._machine.session.step)
        for stand_in in self._sums.devices:
            device.status_word |= stand_in.status_word
        return Array(total.carrier, device.context(total.format))


def _bytes(x: torch.Tensor) -> bytes:
    """The values of a tensor as they lie in memory."""
    values: bytes = x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return values


# Joining ------------------------------------------------------------------------------------------


def join(options: Options, session: Session) -> PoptorchProcesses | None:
    """The processes that options name, joined; None for one alone.

    Raises    ValueError where nothing has started them, or the options say other numbers;
              JoinError for processes that do not come.
    """
    count = options.Distributed.numProcesses
    if count == 1:
        return None
    cluster = _cluster(options)
    global _joined
    if isinstance(session.replicas, Peers):
        members = Members(session.replicas.members.channel)
    elif _joined is not None:
        members = Members(_joined.channel)
    else:
        order = "the plan's" if cluster.order is None else cluster.order.value
        members = _joined = join_cluster(
            cluster, ["poptorch", f"order: {order}", *settings_of(session)]
        )
    session.listing = members.program
    return PoptorchProcesses(members, options.replication_factor, cluster.order)


def _cluster(options: Options) -> Cluster:
    """What the launcher says, which the options must agree with."""
    process, count = options.Distributed.processId, options.Distributed.numProcesses
    local = options.replication_factor
    cluster = Cluster.from_environment()
    if cluster is None and all(name in os.environ for name in MPI_NAMES):
        cluster = Cluster(process, count, count * local, transport="mpi")
    if cluster is None:
        raise ValueError(
            f"num_processes={count}, and nothing has started other processes; start the program "
            f"with: fpsim poprun --num-instances {count} --num-replicas {count * local} …"
        )
    if (cluster.rank, cluster.size) != (process, count):
        raise ValueError(
            f"options.Distributed has process {process} of {count}, and this one is "
            f"{cluster.rank} of {cluster.size}; use popdist.poptorch.Options()"
        )
    if cluster.local_replicas != local:
        raise ValueError(
            f"options.replicationFactor({local}), and poprun deals {cluster.local_replicas} "
            "replicas to each process; use popdist.poptorch.Options()"
        )
    return cluster
