"""A worker that joins when it reads a line: SEED. It prints seconds and error as JSON."""

from __future__ import annotations

import json
import sys
import time

from ipu.distributed import grpc_transport
from ipu.distributed.cluster import Cluster
from ipu.distributed.transport import JoinError

if __name__ == "__main__":
    cluster = Cluster.from_environment()
    assert cluster is not None
    print("ready", flush=True)
    sys.stdin.readline()
    start, error = time.monotonic(), None
    try:
        grpc_transport.connect(cluster, f"seed: {sys.argv[1]}").close()
    except JoinError as refusal:
        error = str(refusal)
    print(json.dumps({"seconds": time.monotonic() - start, "error": error}), flush=True)
