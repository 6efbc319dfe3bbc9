"""The transport of a cluster, by its name; its library is imported when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from ipu.installation import how_to_install
from ipu.members.cluster import Cluster
from ipu.members.transport import StoppedError, Transport, failure

__all__ = ["connect", "leaving"]

#: The module of each transport and the packages that it needs; each has `connect(cluster, plan)`.
_MODULES = {
    "grpc": ("ipu.members.grpc_transport", ("grpc", "grpc_tools", "google"), "grpc"),
    "mpi": ("ipu.members.mpi_transport", ("mpi4py",), "mpi"),
}


def connect(cluster: Cluster, plan: str = "") -> Transport:
    """Join the other workers; returns when all have joined.

    plan      what must be equal on all workers, as lines of text.

    Raises    JoinError for a worker that does not answer or is of another training; ImportError
              where the transport's extra is missing.
    """
    if cluster.transport not in _MODULES:
        raise ValueError(
            f"transport={cluster.transport!r} has its workers in one process; use run_local"
        )
    if cluster.transport == "grpc":
        # gRPC's own lines about connections that end stand beside the sentence that says why.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    name, packages, extra = _MODULES[cluster.transport]
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise ImportError(
            f"transport={cluster.transport!r} needs {error.name}, which is not installed; "
            f"{how_to_install(extra)}"
        ) from None
    transport: Transport = module.connect(cluster, plan)
    return transport


@contextmanager
def leaving(transport: Transport) -> Iterator[Transport]:
    """Leave the others after the block; they are told of an error inside, in its words.

    Without it a worker that raises and closes its transport has finished, as the others hear it.

    >>> from ipu.members.local_transport import run_local
    >>> def work(transport):
    ...     try:
    ...         with leaving(transport):
    ...             return transport.receive(1) if transport.rank == 0 else 1 / 0
    ...     except (StoppedError, ZeroDivisionError) as error:
    ...         return str(error)
    >>> run_local(2, work)
    ['worker 1 stopped: ZeroDivisionError: division by zero', 'division by zero']
    """
    try:
        yield transport
    except BaseException as error:
        is_exit = isinstance(error, SystemExit) and not error.code
        if not is_exit and not isinstance(error, StoppedError):
            rank = transport.rank
            transport.abort(failure(error, rank, transport.describe(rank)))
        raise
    finally:
        transport.close()
