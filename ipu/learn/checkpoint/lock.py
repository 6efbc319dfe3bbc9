"""A folder of checkpoints is one training's: two would remove or overwrite each other's steps.

The lock is one of the system on a file of the folder, which goes with its process, however that
ends: a killed training blocks no later one. It holds between computers where the file system has
locks (NFS from version 3 with lockd, version 4 by itself). Inside of a process a list holds, since
some file systems know locks by process alone.

Source    flock(2), on NFS "Details"; POSIX fcntl.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import warnings
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO

from fpsim.state.files import lock

__all__ = ["LOCK", "FolderLock"]

#: The file that is locked; it names its process, and is removed when the training leaves.
LOCK = ".training"
#: Seconds in which a training that was just stopped leaves its folder, and between looks.
PATIENCE, _LOOK = 5.0, 0.1
_LONGEST = 4096

#: Folders that trainings of this process have.
_here: set[str] = set()
_changing = threading.Lock()
#: Their files. A child of fork closes them: its parent's lock must not last as long as the child.
_files: weakref.WeakSet[IO[str]] = weakref.WeakSet()


def _close_all() -> None:
    for file in list(_files):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all)


class FolderLock:
    """One training's right to a folder, until `release` or the end of the process.

    patience    seconds for which a training of another process is waited for.

    Raises    ValueError where another training has the folder; OSError where nothing can be
              written there.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as name:
    ...     first = FolderLock(Path(name))
    ...     try:
    ...         FolderLock(Path(name))
    ...     except ValueError as error:
    ...         print(str(error).partition("is in use by ")[2])
    ...     first.release()
    another training of this process; close that one first, or name another folder
    """

    def __init__(self, folder: Path, patience: float | None = None) -> None:
        key = os.path.realpath(folder)
        with _changing:
            if key in _here:
                raise ValueError(
                    f"checkpoint={str(folder)!r} is in use by another training of this process; "
                    "close that one first, or name another folder"
                )
            _here.add(key)
        try:
            file = _locked(folder, PATIENCE if patience is None else patience)
        except BaseException:
            _here.discard(key)
            raise
        #: Called once, at the end of the process at the latest.
        self.release = weakref.finalize(self, _release, key, file, folder / LOCK, os.getpid())
        _files.add(file)


def _locked(folder: Path, patience: float) -> IO[str]:
    """The open and locked file of a folder."""
    until = time.monotonic() + patience
    while True:
        file = open(folder / LOCK, "a+")  # noqa: SIM115  open as long as the training
        try:
            if not _lock(file, folder):
                if time.monotonic() < until:
                    time.sleep(_LOOK)
                else:
                    raise ValueError(
                        f"checkpoint={str(folder)!r} is in use by {_owner(file)}; wait for its "
                        "end, or name another folder"
                    )
            elif _is_there(file, folder / LOCK):
                file.truncate(0)
                file.write(json.dumps({"process": os.getpid(), "computer": socket.gethostname()}))
                file.flush()
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(file: IO[str], folder: Path) -> bool:
    """Whether the file is this process's; where the file system has no locks, which is said."""
    try:
        return lock(file, wait=False)
    except OSError as error:
        _warn(folder, f"no file locks: {error.strerror}")
        return True


def _warn(folder: Path, reason: str) -> None:
    warnings.warn(
        f"checkpoint={str(folder)!r} cannot be locked ({reason}); start no other training with "
        "this folder, they would remove each other's steps",
        RuntimeWarning,
        stacklevel=5,
    )


def _is_there(file: IO[str], path: Path) -> bool:
    """Whether a file still has its name: one that its training has left is removed."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _owner(file: IO[str]) -> str:
    """Who has locked a file, as far as it says so."""
    try:
        file.seek(0)
        row = json.loads(file.read(_LONGEST))
        return f"the training of process {int(row['process'])} on {str(row['computer'])[:100]!r}"
    except (ValueError, TypeError, KeyError, RecursionError, OSError):
        return "another training"


def _release(key: str, file: IO[str], path: Path, process: int) -> None:
    """Leave the folder: the file is removed while it is still locked."""
    if os.getpid() != process:
        return  # a child of fork, whose parent goes on
    with suppress(OSError):
        if _is_there(file, path):
            path.unlink()
    file.close()
    _here.discard(key)
