"""How kernels are compiled, and where the result is kept.

Numba's disk cache notices an edit in the file of a kernel but not in a file that it calls into, so
stale code could run. Kernels are therefore kept in a folder named by a hash of every source here;
numba is told so only while it looks at one of them, and a user's own functions stay where they are.
Where no folder can be written (containers, clusters), kernels are compiled in each process.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import config

from fpsim.kernels.guard import InlineCompiler, KernelCompiler

__all__ = ["INLINE", "cache_folder", "compiled"]

#: Options of every function here. Nothing calls one from C, so none has an entry for it, which took
#: one twentieth of the time of a compilation.
_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

#: Options of every function that a kernel calls: no call is left in the compiled loop.
INLINE = {**_OPTIONS, "forceinline": True, "pipeline_class": InlineCompiler}


@cache
def cache_folder() -> Path:
    """Where compiled kernels of exactly these sources are kept (FPSIM_CACHE_DIR moves it)."""
    digest = hashlib.sha256()
    here = Path(__file__).resolve().parent
    for source in sorted(here.rglob("*.py")):
        name = source.relative_to(here).as_posix()
        digest.update(name.encode() + b"\0" + source.read_bytes())
    root = os.environ.get("FPSIM_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    # Without a home `~` stays as it is; nothing is written below it then.
    base = Path(root) if root else Path(os.path.expanduser("~"), ".cache")
    return base / "fpsim" / f"kernels-{digest.hexdigest()[:16]}"


@cache
def _writable_folder() -> str | None:
    """The folder of compiled kernels; None, after one warning, where it cannot be written.

    A user's NUMBA_CACHE_DIR is used as it is.
    """
    folder = config.CACHE_DIR or str(cache_folder())
    try:
        if not os.path.isabs(folder) and folder.startswith("~"):
            raise OSError("no home folder")
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        warnings.warn(
            f"compiled kernels cannot be kept in {folder} ({error.strerror or error}), so every "
            "process compiles its own; name a writable folder in FPSIM_CACHE_DIR",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def compiled(function: Callable[..., Any], guarded: bool = True) -> Any:
    """A kernel: compiled at its first call, without the interpreter lock, kept on disk.

    It is kept by its text and the numbers that it captures. What else it reads while it compiles,
    names of modules, must never be changed, by tests either: a wrong kernel would stay on disk.

    If `guarded`, it runs under the processor's usual status and leaves it as it was.
    """
    usual, folder = config.CACHE_DIR, _writable_folder()
    config.CACHE_DIR = folder or usual
    try:
        compiler = KernelCompiler if guarded else InlineCompiler
        return njit(**_OPTIONS, cache=folder is not None, pipeline_class=compiler)(function)
    finally:
        config.CACHE_DIR = usual
