"""The processes of a run: started by `init`, numbered, left by `shutdown`.

Which processes there are is what the environment says (TF_CONFIG, or `fpsim poprun`'s variables),
else what MPI says. Every process is one worker, whatever replicas it has.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace

from ipu.installation import how_to_install
from ipu.machine.device import Device
from ipu.members.channel import Channel
from ipu.members.cluster import Cluster
from ipu.members.members import Members, join
from ipu.members.mpi_transport import import_mpi, mpi_world
from ipu.members.sums import ReplicaSums
from ipu.plan.orders import Order

__all__ = [
    "Runtime", "init", "is_initialized", "local_rank", "local_size", "rank", "require_transport",
    "running", "shutdown", "size",
]

WITHOUT_MPI = (
    "horovod needs an MPI library and found none; install Open MPI with your system's package "
    f"manager, or: {how_to_install('mpi')}"
)


@dataclass
class Runtime:
    """A run that was started.

    members  its workers; sums: over them.
    local    number of this worker, and number of workers, on its computer.
    calls    sums so far: each has addresses of its own.
    """

    members: Members
    sums: ReplicaSums
    local: tuple[int, int]
    calls: int = 0

    @property
    def channel(self) -> Channel:
        """Between its workers."""
        return self.members.channel


_running: Runtime | None = None


def require_transport() -> None:
    """Load the MPI library, unless the environment names another transport.

    Raises    ImportError where there is none.
    """
    if _cluster() is not None:
        return
    try:
        import_mpi()
    except ImportError as error:
        raise ImportError(WITHOUT_MPI) from error


def _cluster() -> Cluster | None:
    """The workers of the environment, if they need no MPI."""
    cluster = Cluster.from_environment()
    return None if cluster is None or cluster.transport == "mpi" else cluster


def init() -> None:
    """Join the other processes; a second call does nothing.

    Raises    JoinError for processes that do not come, or are of another version.
    """
    global _running
    if _running is not None:
        return
    cluster = Cluster.from_environment()
    if cluster is None:
        number, count = mpi_world()
        cluster = Cluster(number, count, count, transport="mpi")
    cluster = replace(cluster, replicas=cluster.size)
    order = cluster.order or Order.TF_RING
    members = join(cluster, ["horovod", f"order: {order.value}"])
    sums = ReplicaSums(members.channel, cluster.size, Device, order)
    _running = Runtime(members, sums, _local(members.channel))


def _local(channel: Channel) -> tuple[int, int]:
    hosts = channel.gather(socket.gethostname().encode(), "the name of the computer")
    host = hosts[channel.rank]
    return hosts[: channel.rank].count(host), hosts.count(host)


def shutdown() -> None:
    """Leave the run when all processes have come here."""
    global _running
    if _running is not None:
        _running.members.end()
        _running = None


def is_initialized() -> bool:
    """Whether the run was started and not left."""
    return _running is not None


def running() -> Runtime:
    """The run.

    Raises    ValueError before `init`.
    """
    if _running is None:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _running


def size() -> int:
    """Processes."""
    return running().channel.size


def rank() -> int:
    """Number of this process."""
    return running().channel.rank


def local_size() -> int:
    """Processes of this computer."""
    return running().local[1]


def local_rank() -> int:
    """Number of this process on its computer."""
    return running().local[0]
