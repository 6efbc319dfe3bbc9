"""The line of the user's program that runs now, for errors to name.

It is the innermost frame outside of this package, of torch and of installed libraries; where there
is none, the innermost one outside of this package and of torch.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from types import FrameType

import torch

__all__ = ["user_line"]


def _folder(path: str | Path) -> str:
    return os.path.join(os.path.realpath(path), "")


_OURS = tuple(_folder(Path(__file__).parents[3] / package) for package in ("fpsim", "ipu"))
_TORCH = (_folder(Path(torch.__file__).parent),)
_INSTALLED = tuple(
    _folder(sysconfig.get_paths()[kind]) for kind in ("stdlib", "platstdlib", "purelib", "platlib")
)


def user_line() -> str:
    """The line as FILE:NUMBER, "" where no frame is the user's."""
    fallback = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        line, frame = frame.f_lineno, frame.f_back
        if file.startswith("<") or not os.path.isabs(file):
            continue
        path = os.path.realpath(file)
        if path.startswith(_OURS) or path.startswith(_TORCH):
            continue
        if not path.startswith(_INSTALLED):
            return f"{file}:{line}"
        fallback = fallback or f"{file}:{line}"
    return fallback
