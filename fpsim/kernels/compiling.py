"""How kernels are compiled, and where the result is kept.

Numba's disk cache notices an edit in the file of a kernel but not in a file that it calls into, so
stale code could run. Kernels are therefore kept in a folder named by a hash of every source here.
Where no folder can be written (containers, clusters), kernels are compiled in each process, but for
those that came compiled with the package (see `packs`).
"""

from __future__ import annotations

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
from fpsim.kernels.keeping import KernelCache
from fpsim.kernels.sources import digest_of_sources

__all__ = ["INLINE", "cache_folder", "compiled"]

#: Options of every function here. Nothing calls one from C, so none has an entry for it, which took
#: one twentieth of the time of a compilation.
_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

#: Options of every function that a kernel calls: no call is left in the compiled loop.
INLINE = {**_OPTIONS, "forceinline": True, "pipeline_class": InlineCompiler}


@cache
def cache_folder() -> Path:
    """Where compiled kernels of exactly these sources are kept.

    FPSIM_CACHE_DIR moves it, and NUMBA_CACHE_DIR where that is not set.
    """
    root = os.environ.get("FPSIM_CACHE_DIR") or config.CACHE_DIR
    root = root or os.environ.get("XDG_CACHE_HOME")
    # Without a home `~` stays as it is; nothing is written below it then.
    base = Path(root) if root else Path(os.path.expanduser("~"), ".cache")
    return base / "fpsim" / f"kernels-{digest_of_sources()}"


@cache
def _writable_folder() -> str | None:
    """The folder of compiled kernels; None, after one warning, where it cannot be written."""
    folder = str(cache_folder())
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
    compiler = KernelCompiler if guarded else InlineCompiler
    kernel = njit(**_OPTIONS, pipeline_class=compiler)(function)
    kernel._cache = KernelCache(function, _writable_folder())
    return kernel
