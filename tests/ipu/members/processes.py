"""Workers as real processes on loopback; ports come from the system, and nobody is left over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ipu.frontends.popdist.launch import free_ports

ROOT = Path(__file__).parents[3]
PROGRAM = "ipu.experiments.programs.distributed_training"

#: Seconds in which a process starts and compiles on a busy machine: a limit, not a wait.
STARTED = 60.0


def limit(seconds: float) -> float:
    """A limit of the specification, longer where more processes run than there are cores."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def free_addresses(n: int) -> list[str]:
    """Addresses that nobody else gets until the workers listen on them."""
    return [f"127.0.0.1:{port}" for port in free_ports(n)]


def environment(
    rank: int, addresses: Sequence[str], replicas: int, **others: str
) -> dict[str, str]:
    """What `fpsim poprun` sets for a worker."""
    size = max(len(addresses), 1)
    foreign = ("FPSIM_", "POPDIST_", "TF_")
    variables = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    return variables | {
        "PYTHONPATH": str(ROOT), "FPSIM_TRANSPORT": "grpc", "FPSIM_WORKERS": ",".join(addresses),
        "POPDIST_NUM_INSTANCES": str(size), "POPDIST_INSTANCE_INDEX": str(rank),
        "POPDIST_NUM_TOTAL_REPLICAS": str(replicas),
        "POPDIST_NUM_LOCAL_REPLICAS": str(replicas // size),
        "POPDIST_REPLICA_INDEX_OFFSET": str(rank * replicas // size),
    } | others


def tf_config(rank: int, addresses: Sequence[str], **others: str) -> dict[str, str]:
    """What a user of TensorFlow sets for a worker of one replica."""
    variables = environment(rank, addresses, len(addresses), **others)
    foreign = ("POPDIST_", "FPSIM_WORKERS")
    inherited = {k: v for k, v in variables.items() if not k.startswith(foreign)}
    config = {"cluster": {"worker": list(addresses)}, "task": {"type": "worker", "index": rank}}
    return inherited | {"TF_CONFIG": json.dumps(config)}


class Worker:
    """A process and what it has printed."""

    def __init__(self, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *arguments], env=variables, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        )
        rank = variables.get("POPDIST_INSTANCE_INDEX", "0")
        addresses = variables.get("FPSIM_WORKERS", "").split(",")
        self.address = addresses[int(rank)] if len(addresses) > int(rank) else ""

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def until(self, text: str) -> None:
        """Wait for a line that holds this text."""
        while text not in (line := self.line()):
            assert line or self.process.poll() is None, self.ended(1.0)

    def tell(self, text: str) -> None:
        """Write a line that it reads."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def ended(self, seconds: float) -> tuple[int, str, str]:
        """Status, output and errors; it must end within so many seconds."""
        output, errors = self.process.communicate(timeout=seconds)
        return self.process.returncode, output, errors

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


@contextmanager
def workers(
    size: int, *arguments: str, replicas: int = 0, program: str = PROGRAM, **variables: str
) -> Iterator[list[Worker]]:
    """Processes of one training; whoever is still there at the end is a failure."""
    addresses, replicas = free_addresses(size), replicas or size
    started = [
        Worker([program, *arguments], environment(rank, addresses, replicas, **variables))
        for rank in range(size)
    ]
    with guarded(started):
        yield started


@contextmanager
def guarded(started: Sequence[Worker]) -> Iterator[None]:
    """Kill what is left, and say so."""
    try:
        yield
    except BaseException:
        left = []
        raise
    else:
        left = [worker for worker in started if worker.process.poll() is None]
    finally:
        for worker in started:
            if worker.process.poll() is None:
                worker.signal(signal.SIGCONT)
                worker.process.kill()
            worker.process.wait()
            for stream in (worker.process.stdin, worker.process.stdout, worker.process.stderr):
                if stream is not None:
                    stream.close()
    assert not left, f"{len(left)} processes were left over"


def all_ended(started: Sequence[Worker], seconds: float) -> list[tuple[int, str, str]]:
    """What each process leaves; all must end within so many seconds together."""
    deadline = time.monotonic() + seconds
    return [worker.ended(max(deadline - time.monotonic(), 0.01)) for worker in started]
