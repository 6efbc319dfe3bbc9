"""The transport of a cluster, by its name; its library is imported when it is asked for."""

from __future__ import annotations

import os
from importlib import import_module

from ipu.distributed.cluster import Cluster
from ipu.distributed.transport import Transport
from ipu.installation import how_to_install

__all__ = ["connect"]

#: The module of each transport and the packages that it needs; each has `connect(cluster, plan)`.
_MODULES = {
    "grpc": ("ipu.distributed.grpc_transport", ("grpc", "grpc_tools", "google"), "grpc"),
    "mpi": ("ipu.distributed.mpi_transport", ("mpi4py",), "mpi"),
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
