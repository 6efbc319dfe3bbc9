"""One process of poprun: a program with its number in the environment and before its lines.

`python -m ipu.frontends.popdist.instance PROGRAM ARGS…` runs PROGRAM. Who starts it says in the
environment which instance it is, poprun or an MPI launcher; each line that PROGRAM writes gets
`[i] ` before it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import BinaryIO

from ipu.frontends.popdist.guard import guarded
from ipu.members.arrival import ArrivalStage, tell

__all__ = ["ONLY_OUTPUT", "environment_of", "main"]

#: The instance whose lines are shown; unset: all.
ONLY_OUTPUT = "FPSIM_ONLY_OUTPUT"

#: Where launchers write a process's number, of all and on its computer: ours, Open MPI's, PMIx',
#: and those of MPICH and its relatives.
_INDEX = ("POPDIST_INSTANCE_INDEX", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_LOCAL_INDEX = ("POPDIST_LOCAL_INSTANCE_INDEX", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")

#: Seconds that the last lines of a program may take after its end, if its children hold the pipe.
_LAST_LINES = 1.0


def environment_of(environment: dict[str, str]) -> dict[str, str]:
    """The environment of the program: the launcher's, with the numbers of this instance.

    Raises    ValueError where no launcher says which instance it is.
    """
    index = _first(environment, _INDEX)
    if index is None:
        raise ValueError(f"none of {', '.join(_INDEX)} is set; start instances by fpsim poprun")
    local = int(environment["POPDIST_NUM_LOCAL_REPLICAS"])
    return environment | {
        "POPDIST_INSTANCE_INDEX": index,
        "POPDIST_LOCAL_INSTANCE_INDEX": _first(environment, _LOCAL_INDEX) or index,
        "POPDIST_REPLICA_INDEX_OFFSET": str(int(index) * local),
        # Lines are shown as they come, and are not lost when a process is killed.
        "PYTHONUNBUFFERED": "1",
    }


def _first(environment: dict[str, str], names: Sequence[str]) -> str | None:
    return next((environment[name] for name in names if name in environment), None)


def main(command: Sequence[str]) -> int:
    """Run a command; its status, and 127 for one that cannot be started."""
    environment = environment_of(dict(os.environ))
    index, only = environment["POPDIST_INSTANCE_INDEX"], environment.pop(ONLY_OUTPUT, None)
    readers: list[threading.Thread] = []
    tell(ArrivalStage.STARTED, index)

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        for stream, to in ((process.stdout, 1), (process.stderr, 2)):
            arguments = stream, to, index, only in (None, index)
            readers.append(threading.Thread(target=_forward, args=arguments, daemon=True))
            readers[-1].start()
        return process

    try:
        status = guarded(start, signal.SIGINT)
    except OSError as error:
        _write(2, index, f"{command[0]} cannot be started: {error.strerror}\n".encode())
        tell(ArrivalStage.ENDED, index)
        return 127
    for reader in readers:
        reader.join(_LAST_LINES)
    tell(ArrivalStage.ENDED, index)
    return status


def _forward(stream: BinaryIO, to: int, index: str, is_shown: bool) -> None:
    """Write each line to a file descriptor, in one piece."""
    for line in stream:
        if is_shown:
            _write(to, index, line if line.endswith(b"\n") else line + b"\n")


def _write(to: int, index: str, line: bytes) -> None:
    os.write(to, f"[{index}] ".encode() + line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
