"""Whether a process of a test has ended: while it lives it holds a lock on a file."""

from __future__ import annotations

import fcntl
import time

__all__ = ["HOLD", "assert_ended"]

#: The beginning of a program that lives as long as the file `path` is locked.
HOLD = """
import fcntl, os
def hold(path):
    global held
    held = open(path + ".tmp", "w")
    fcntl.flock(held, fcntl.LOCK_EX)
    os.rename(held.name, path)
"""


def assert_ended(path, seconds=30):
    """Fail if the process still lives after some time: a killed one needs a moment to end."""
    until = time.monotonic() + seconds
    with open(path) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                assert time.monotonic() < until, f"the process that holds {path} lives"
                time.sleep(0.01)
            else:
                return
