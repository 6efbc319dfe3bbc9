"""A process between poprun and a program: passes signals on, and ends the program with poprun.

`python -m ipu.frontends.popdist.guard mpirun …` guards mpirun; instances are guarded too
(`ipu.frontends.popdist.instance`). SIGUSR1 asks a guard to interrupt its program, as ^C does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

__all__ = ["guarded"]

#: Seconds between looks at the parent, and between its end and that of all processes.
_LOOK, _LAST = 0.2, 3.0


def guarded(start: Callable[[], subprocess.Popen[bytes]], interruption: signal.Signals) -> int:
    """Start a program and wait for it; its status, as a shell has it: 128 + n after signal n.

    interruption    what the program gets when this process gets SIGUSR1.
    """
    # Signals that are ignored stay so in the program: only this process takes SIGUSR1.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    # A shell's background job ignores SIGINT, and so would the program that is to be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = start()
    signal.signal(signal.SIGUSR1, lambda *_: process.send_signal(interruption))
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    threading.Thread(target=_end_with, args=(os.getppid(), process), daemon=True).start()
    status = process.wait()
    return 128 - status if status < 0 else status


def _end_with(parent: int, process: subprocess.Popen[bytes]) -> None:
    """End the program and everything of this group when the parent has ended, however it did."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LAST)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(guarded(lambda: subprocess.Popen(sys.argv[1:]), signal.SIGUSR1))
