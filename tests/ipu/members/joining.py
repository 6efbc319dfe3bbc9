"""A worker that joins when it reads a line: SEED [dies]. It prints its end as JSON.

With `dies` it prints the time and is killed as soon as others have answered and watch it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from ipu.members import grpc_transport
from ipu.members.cluster import Cluster
from ipu.members.grpc_transport import GrpcTransport
from ipu.members.transport import JoinError


def die(transport: GrpcTransport) -> None:
    """In place of a look at what others have told."""
    if transport._tokens and transport._watchers:
        print(json.dumps({"time": time.time()}), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    cluster = Cluster.from_environment()
    assert cluster is not None
    if "dies" in sys.argv:
        GrpcTransport._check_join = die  # type: ignore[method-assign]
    print("ready", flush=True)
    sys.stdin.readline()
    start, error = time.monotonic(), None
    try:
        grpc_transport.connect(cluster, f"seed: {sys.argv[1]}").close()
    except JoinError as refusal:
        error = str(refusal)
    row = {"seconds": time.monotonic() - start, "time": time.time(), "error": error}
    print(json.dumps(row), flush=True)
