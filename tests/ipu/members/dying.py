"""The program, on a worker that is killed before a change of its checkpoints: MOMENT N arguments….

It dies before the N-th change of a file or folder whose line "EVENT NAME" holds MOMENT, and prints
the line before. A file that was to get its name is cut to its first half before.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from ipu.experiments.programs import distributed_training

_CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir"}


def main(moment: str, count: int, arguments: list[str]) -> int:
    """Run the program until the moment comes."""
    folder, saves = arguments[arguments.index("--checkpoint") + 1], 0

    def watch(event: str, values: tuple[Any, ...]) -> None:
        nonlocal saves
        if event not in _CHANGES and not (event == "open" and values[2] & os.O_CREAT):
            return
        path = str(values[0])
        name = str(values[1]) if event == "os.rename" else path
        line = f"{event} {name.removeprefix(folder).lstrip('/')}"
        if not name.startswith(folder) or moment not in line:
            return
        saves += 1
        if saves == count:
            if event == "os.rename":
                os.truncate(path, os.path.getsize(path) // 2)
            print(f"moment {line}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    return distributed_training.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
