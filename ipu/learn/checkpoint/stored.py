"""Arrays of an uncompressed npz file, whose every size is checked before memory is taken for it.

A member is stored as it is, so the arrays are together no larger than the file: one that announces
more, in the container or in the header of an array, is damaged. Nothing is unpickled.

Source    numpy.lib.format (NPY 1.0); APPNOTE.TXT of the ZIP format.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

__all__ = ["read_stored"]

_SUFFIX = ".npy"


def read_stored(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of the file by name.

    Raises    OSError where it cannot be read; ValueError, with the reason as one line, where it is
              damaged or cut short, where its arrays are compressed, or hold objects.
    """
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as container:
            members = container.infolist()
            _check_sizes(members, size)
            return {_name(m): _array(container.read(m)) for m in members}
    except OSError:
        raise
    except (
        ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError,
        KeyError, SyntaxError, OverflowError, MemoryError,
    ) as error:  # fmt: skip
        # One wrong bit can be an error of zipfile, numpy or the parser of an array's header.
        reason = str(error) or type(error).__name__
        raise ValueError(reason.splitlines()[0]) from None


def _check_sizes(members: list[zipfile.ZipInfo], size: int) -> None:
    total = 0
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise ValueError(f"{member.filename} is compressed")
        total += member.file_size
    if total > size:
        raise ValueError(f"arrays of {total} bytes in a file of {size}")


def _name(member: zipfile.ZipInfo) -> str:
    if not member.filename.endswith(_SUFFIX):
        raise ValueError(f"{member.filename} is not an array")
    return member.filename.removesuffix(_SUFFIX)


def _array(content: bytes) -> NDArray[Any]:
    stream = io.BytesIO(content)
    if npy.read_magic(stream) != (1, 0):
        raise ValueError("an array of another version than 1.0")
    shape, fortran, dtype = npy.read_array_header_1_0(stream)
    if dtype.hasobject:
        raise ValueError("an array of objects")
    start = stream.tell()
    if math.prod(shape) * dtype.itemsize != len(content) - start:
        raise ValueError(f"an array of shape {shape} in {len(content) - start} bytes")
    values = np.frombuffer(content, dtype, offset=start)
    return values.reshape(shape, order="F" if fortran else "C").copy()
