"""Files that a program writes, told from those that other processes write meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["WatchedFolder"]

#: Device and number of a file.
FileKey = tuple[int, int]
#: Files of a folder that are looked at; a larger one is taken for one that is written to.
_MOST_FILES = 20_000
#: Processes and what they have open, where the system tells it (Linux).
_PROCESSES = Path("/proc")


class WatchedFolder:
    """A folder in which programs run, and when its files were last written.

    No files of the program are those below `besides`, those that this command's own output goes to,
    and those that another process holds open for writing before the program begins, as `tee` does.
    """

    def __init__(self, folder: Path, besides: Path) -> None:
        self._folder, self._besides = folder, besides
        self._of_others = {*_files_of_output(), *_files_held()}
        self._before = self.times()

    def written(self) -> str:
        """A file that was written since the object was made; "" for none."""
        after = self.times()
        if self._before is None or after is None:
            return "into a folder of very many files, perhaps"
        return next((f for f, time in after.items() if self._before.get(f) != time), "")

    def times(self) -> dict[str, int] | None:
        """When the program's files were written, in ns; None: there are too many."""
        times: dict[str, int] = {}
        for place, folders, names in os.walk(self._folder):
            folders[:] = [
                name for name in folders
                if name not in ("__pycache__", ".git")
                and Path(place, name).resolve() != self._besides
            ]
            for name in names:
                path = os.path.join(place, name)
                try:
                    status = os.stat(path)
                except OSError:
                    continue
                if (status.st_dev, status.st_ino) not in self._of_others:
                    times[path] = status.st_mtime_ns
                if len(times) > _MOST_FILES:
                    return None
        return times


def _files_of_output() -> Iterator[FileKey]:
    """What standard output and standard error are written to."""
    for descriptor in (1, 2):
        try:
            status = os.fstat(descriptor)
        except OSError:
            continue
        yield status.st_dev, status.st_ino


def _files_held() -> Iterator[FileKey]:
    """Files that other processes, as far as they may be looked at, hold open for writing."""
    for process in _PROCESSES.glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        try:
            descriptors = list((process / "fd").iterdir())
        except OSError:
            continue  # of another user, or gone
        for descriptor in descriptors:
            try:
                if not _is_written(process / "fdinfo" / descriptor.name):
                    continue
                status = os.stat(descriptor)
            except OSError:
                continue
            yield status.st_dev, status.st_ino


def _is_written(info: Path) -> bool:
    """Whether a file was opened for writing: the flags of open(2), in octal digits."""
    for line in info.read_text().splitlines():
        name, _, flags = line.partition(":")
        if name == "flags":
            return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
    return False
