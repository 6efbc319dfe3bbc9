"""The processes of a launch: started, waited for, and ended; none is left over.

The first status that is not 0 is the launch's. The other processes then have `GRACE` seconds to
say what they miss and to leave; ^C interrupts all of them. A process that stays after its
interruption gets SIGTERM, then SIGKILL. A launch whose instances do not come together ends with a
sentence that names the missing ones (`ipu.frontends.popdist.arriving`), and status 2.
"""

from __future__ import annotations

import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from ipu.frontends.popdist.arriving import Arrivals
from ipu.frontends.popdist.instance import ONLY_OUTPUT
from ipu.frontends.popdist.launch import PoprunOptions, free_ports
from ipu.members.arrival import FOLDER

__all__ = ["INTERRUPTED", "run"]

#: The status of a launch that was interrupted, as a shell has it.
INTERRUPTED = 130
#: Seconds that the others may go on after one has failed, and after an interruption and a SIGTERM.
GRACE, SAVING, ENDING = 15.0, 10.0, 3.0
#: Seconds that instances which have not joined may go on after their interruption.
UNSAVED = 1.0
#: Seconds between looks at how far instances have come.
_LOOK = 0.5
#: The status of a launch whose instances do not come together, as that of their own refusals.
_REFUSED = 2


def run(launch: PoprunOptions, program: list[str], only_output: int | None = None) -> int:
    """Start a program in every instance and wait for all; the status of the launch.

    only_output    the instance whose lines are shown; None: all.

    Raises    ValueError where the launcher of the transport is not installed.
    """
    environment = dict(os.environ) | launch.environment
    if only_output is not None:
        environment[ONLY_OUTPUT] = str(only_output)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with _terminated_as_interrupted(), TemporaryDirectory(prefix="poprun-") as folder:
            environment[FOLDER] = folder
            arrivals = Arrivals(Path(folder), launch.instances, launch.join_timeout)
            try:
                for line, variables in _lines(launch, program):
                    stdin = subprocess.DEVNULL if processes else None
                    processes.append(
                        subprocess.Popen(
                            line, env=environment | variables, start_new_session=True, stdin=stdin
                        )
                    )
                return _wait(processes, arrivals)
            except KeyboardInterrupt:
                _end(processes)
                return INTERRUPTED
    finally:
        _kill(processes)


def _lines(launch: PoprunOptions, program: list[str]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The command lines to start on this computer, each with its variables."""
    if launch.transport == "mpi":
        guard = [sys.executable, "-P", "-m", "ipu.frontends.popdist.guard"]
        yield [*guard, *launch.mpirun(program)], {}
        return
    ports = free_ports(launch.instances) if launch.transport == "grpc" else []
    workers = ",".join(f"127.0.0.1:{port}" for port in ports)
    shared = {"FPSIM_WORKERS": workers} if ports else {}
    for index in range(launch.instances):
        yield launch.command(program), shared | {"POPDIST_INSTANCE_INDEX": str(index)}


def _wait(processes: Sequence[subprocess.Popen[bytes]], arrivals: Arrivals) -> int:
    """Until all have ended; the first status that is not 0."""
    ended: queue.Queue[int] = queue.Queue()
    for process in processes:
        threading.Thread(target=lambda p=process: ended.put(p.wait()), daemon=True).start()
    status, left, until = 0, len(processes), math.inf
    while left:
        try:
            latest = ended.get(timeout=_LOOK)
            status, left = status or latest, left - 1
        except queue.Empty:
            if time.monotonic() > until:
                _end(processes)
                break
        if status and until == math.inf:
            until = time.monotonic() + GRACE
        sentence = arrivals.missing()
        if sentence:
            print(f"poprun: {sentence}", file=sys.stderr, flush=True)
            status = status or _REFUSED
            _end(processes, UNSAVED)
            break
    else:
        sentence = arrivals.ended_early() if status else None
        if sentence:
            print(f"poprun: {sentence}", file=sys.stderr, flush=True)
    return 128 - status if status < 0 else status


def _end(processes: Sequence[subprocess.Popen[bytes]], saving: float | None = None) -> None:
    """Interrupt all, then SIGTERM; `run` kills what is left.

    saving    seconds between the two; None: SAVING.
    """
    first = SAVING if saving is None else saving
    for number, seconds in ((signal.SIGUSR1, first), (signal.SIGTERM, ENDING)):
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)
        until = time.monotonic() + seconds
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))


def _kill(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what is left in the session of each process, its own children too."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM and SIGHUP end the launch as ^C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, _interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
