"""The line of the user's program that runs now.

It is the innermost frame outside of this package, of its framework and of installed libraries;
where there is none, the innermost one outside of this package and of the framework.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import FrameType

__all__ = ["folder_of", "user_line"]


def folder_of(path: str | Path) -> str:
    """A folder as the beginning of its files' real paths."""
    return os.path.join(os.path.realpath(path), "")


_OURS = tuple(folder_of(Path(__file__).parents[2] / package) for package in ("fpsim", "ipu"))
_INSTALLED = tuple(
    folder_of(sysconfig.get_paths()[kind])
    for kind in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
)


def user_line(framework: str = "") -> str:
    """The line as FILE:NUMBER, "" where no frame is the user's.

    framework    the folder of a framework, none of whose frames is told.
    """
    fallback = ""
    owners = _owners_beside(framework)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:  # digests ask at each operation: no calls, and lines where they count
        file = frame.f_code.co_filename
        owner = owners.get(file)
        if owner is None:
            owner = owners[file] = _owner(file, framework)
        if owner:
            if owner == "user":
                return f"{file}:{frame.f_lineno}"
            fallback = fallback or f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return fallback


@cache
def _owners_beside(framework: str) -> dict[str, str]:
    """Owners of files that were asked for, beside a framework."""
    return {}


def _owner(file: str, framework: str) -> str:
    """Whose a file of Python is: "user", "installed" or, of us, the framework and no file, ""."""
    path = os.path.realpath(file)
    ours = (*_OURS, framework) if framework else _OURS
    if file.startswith("<") or path.startswith(ours):
        return ""
    return "installed" if path.startswith(_INSTALLED) else "user"
