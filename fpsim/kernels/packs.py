"""Kernels that come compiled with the package: a pack for each level of processors.

A pack is a zip file of the files that `keeping` writes, and says what they are for: sources of all
kernels, Python, numba, and what kernels read of the processor while they compile. Where one of
these differs it is not used, and kernels are compiled as without it. A processor takes the pack of
the highest level that it has.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numba

from fpsim.kernels import target
from fpsim.kernels.levels import LEVELS, host_features
from fpsim.kernels.sources import digest_of_sources

__all__ = ["FOLDER", "Pack", "best_pack", "find_pack", "identity", "read_pack", "write_pack"]

#: Where packs of an installation lie.
FOLDER = Path(__file__).parent / "packs"
_HEADER = "header.json"


class Pack(NamedTuple):
    """The kernels of one level, in memory.

    identity    see `identity`.
    """

    level: str
    identity: dict[str, Any]
    archive: zipfile.ZipFile

    def get(self, name: str) -> bytes | None:
        """What `keeping` wrote for a kernel; None where it is not among them."""
        try:
            return self.archive.read(name)
        except KeyError:
            return None


def identity() -> dict[str, Any]:
    """What a pack and a process must have in common."""
    names = ("HAS_FMA", "HAS_INEXACT_FLAG", "HAS_QUIET_ADD", "PRODUCT_BITS")
    return {
        "sources": digest_of_sources(),
        "python": f"{sys.implementation.cache_tag}{sys.abiflags}",
        "numba": numba.__version__,
        "processor": {name: getattr(target, name) for name in names},
    }


def write_pack(folder: Path, level: str, kernels: Path) -> Path:
    """The pack of the kernels that this process, of that level, has kept in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{level}-{sys.implementation.cache_tag}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_HEADER, json.dumps({"level": level, **identity()}))
        for file in sorted(kernels.glob("*.nbc")):
            # The last part of a name is the processor's.
            archive.writestr(file.stem.rpartition(".")[0], file.read_bytes())
    return path


def read_pack(path: Path) -> Pack | None:
    """A pack whose file is whole; None for any other."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
        header = json.loads(archive.read(_HEADER))
        return Pack(header.pop("level"), header, archive)
    except (OSError, ValueError, KeyError, AttributeError, TypeError, zipfile.BadZipFile):
        return None


def best_pack(folder: Path, features: frozenset[str]) -> Pack | None:
    """The pack in a folder that fits this process, for the highest level with these features."""
    for level in reversed(LEVELS):
        if features.issuperset(LEVELS[level]):
            # The name of a level may begin that of a higher one, which this processor may lack.
            for path in sorted(folder.glob(f"{level}-*.zip")):
                pack = read_pack(path)
                if pack is not None and pack.level == level and pack.identity == identity():
                    return pack
    return None


@cache
def find_pack() -> Pack | None:
    """The pack that this process may take kernels from."""
    return best_pack(FOLDER, host_features())
