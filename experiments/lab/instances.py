"""One function in several processes of this machine, each a worker of a cluster; for measurements.

The processes are started as `fpsim poprun` starts them. A function takes its `Cluster` and plain
arguments, joins the others if it wants to, and returns what JSON holds.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fpsim import set_threads
from fpsim.state.files import write_whole
from ipu.frontends.popdist.launch import PoprunOptions, find_mpirun
from ipu.frontends.popdist.processes import run
from ipu.installation import how_to_install
from ipu.members.cluster import Cluster

__all__ = ["TRANSPORTS", "run_instances", "why_not"]

TRANSPORTS = ("grpc", "mpi")
#: Packages of each transport, and the extra that brings them.
_PACKAGES = {"grpc": ("grpc", "grpc_tools"), "mpi": ("mpi4py",)}
_AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


def why_not(transport: str) -> str:
    """Why a transport cannot be used here; "" where it can.

    >>> import ipu.experiments.lab.instances as module
    >>> find, module.find_spec = module.find_spec, lambda name: None
    >>> why_not("grpc").partition(";")[0]
    'gRPC is not installed'
    >>> module.find_spec = find
    """
    name = {"grpc": "gRPC", "mpi": "MPI"}[transport]
    if not all(find_spec(package) for package in _PACKAGES[transport]):
        return f"{name} is not installed; {how_to_install(transport)}"
    if transport == "mpi":
        try:
            find_mpirun()
        except ValueError:
            return "mpirun is not installed"
        if os.geteuid() == 0 and not all(os.environ.get(one) for one in _AS_ROOT):
            return f"Open MPI does not run as root; set {_AS_ROOT[0]}=1 and {_AS_ROOT[1]}=1"
    return ""


def run_instances(
    function: Callable[..., object],
    processes: int,
    transport: str,
    replicas: int = 0,
    **arguments: object,
) -> list[Any]:
    """What a function of a module returns in each of so many processes, in their order.

    arguments    plain values beside the cluster.

    Raises    RuntimeError where a process fails; what it said stands on standard error.
    """
    launch = PoprunOptions(processes, replicas or processes, transport=transport)
    with tempfile.TemporaryDirectory(prefix="fpsim-instances-") as folder:
        name = f"{function.__module__}:{function.__qualname__}"
        program = [sys.executable, "-P", "-m", __name__, name, folder, json.dumps(arguments)]
        status = run(launch, program)
        if status == 130:
            raise KeyboardInterrupt
        if status:
            raise RuntimeError(
                f"{name} in {processes} processes over {transport} ended with {status}"
            )
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(processes)]


def main(name: str, folder: str, arguments: str) -> None:
    """One process: call the function, and write what it returns."""
    set_threads(1)
    cluster = Cluster.from_environment()
    assert cluster is not None
    module, _, function = name.partition(":")
    result = getattr(import_module(module), function)(cluster, **json.loads(arguments))
    write_whole(Path(folder, f"{cluster.rank}.json"), json.dumps(result).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
