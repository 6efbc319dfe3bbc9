"""Compiled loops: numbers in, numbers out, no policy.

Numba's disk cache notices an edit in the file of a kernel but not in a file that it calls into, so
stale code could run. The cache therefore lives in a folder named by a hash of every file here, set
before numba is imported. Importing compiles nothing.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Where compiled kernels of exactly these sources are kept."""
    digest = hashlib.sha256()
    here = Path(__file__).resolve().parent
    for source in sorted(here.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    root = os.environ.get("FPSIM_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    base = Path(root) if root else Path.home() / ".cache"
    return base / "fpsim" / f"kernels-{digest.hexdigest()[:16]}"


def _use_cache_folder() -> None:
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    os.environ["NUMBA_CACHE_DIR"] = str(cache_folder())
    if "numba" in sys.modules:
        from numba.core import config

        config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]


_use_cache_folder()
