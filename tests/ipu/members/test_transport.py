"""The protocol of transports imports no library of any transport (law)."""

from __future__ import annotations

import subprocess
import sys

from ipu.members.transport import Kind, Reason, StoppedError


def test_a_stop_keeps_its_reason():
    reason = Reason(Kind.SILENT, 2, "worker 2 has been silent for 10 s")
    assert StoppedError(reason).reason is reason


def test_no_transport_is_imported_before_it_is_asked_for():
    program = (
        "import sys, fpsim, ipu.learn, ipu.plan.trainer, ipu.members.cluster, "
        "ipu.members.transport, ipu.members.local_transport\n"
        "print(sorted({'grpc', 'mpi4py', 'dask', 'distributed'} & set(sys.modules)))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == "[]"
