"""Files that are written completely or not at all, and arrays read from files of others.

A file of others may be damaged, or made to fill the memory. Every size in it is compared with what
is there before anything is allocated, and compressed content may grow by a bounded factor.

Source    numpy.lib.format (.npy 1.0 and 2.0, .npz); APPNOTE.TXT of PKWARE (zip).
"""

from __future__ import annotations

import errno
import math
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

try:
    import fcntl
except ImportError:  # a system without file locks keeps the drafts of processes that were killed
    fcntl = None  # type: ignore[assignment]

__all__ = ["check_room", "lock", "most_unpacked", "read_arrays", "refusal", "write_whole"]

#: Compressed content may unpack to this many bytes, and to so many times its own size in addition.
_FREE, _FACTOR = 1 << 28, 64

#: Bytes read at a time.
_CHUNK = 1 << 22

#: The methods of compression that np.savez and np.savez_compressed use.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


# Reading --------------------------------------------------------------------------------------


def most_unpacked(packed: int) -> int:
    """Most bytes that `packed` bytes of compressed content may unpack to.

    A file of zeros shrinks a thousandfold, arrays and vectors in use less than tenfold.

    >>> most_unpacked(4_000_000)
    524435456
    """
    return _FREE + _FACTOR * packed


def read_arrays(
    path: Path, most: int | None = None, *, stored_only: bool = False
) -> dict[str, NDArray[Any]]:
    """Arrays of an .npz file by name; that of an .npy file has the name "".

    All arrays together have at most `most` bytes; None: what `most_unpacked` allows an .npz file,
    and any size an .npy file, which is as long as its array.

    stored_only   compressed arrays are refused, so all are together no larger than the file.

    Raises    OSError where it cannot be read; ValueError, with the reason as one line, where it is
              damaged, cut short, too large, empty, or holds objects.
    """
    with path.open("rb") as stream:
        try:
            return _read(stream, os.fstat(stream.fileno()).st_size, most, stored_only)
        except OSError:
            raise
        except Exception as error:
            # One wrong bit can be an error of zipfile, zlib or the parser of numpy's headers.
            reason = str(error) or type(error).__name__
            raise ValueError(reason.splitlines()[0]) from None


def _read(
    stream: IO[bytes], size: int, most: int | None, stored_only: bool
) -> dict[str, NDArray[Any]]:
    start = stream.read(len(npy.MAGIC_PREFIX))
    stream.seek(0)
    if not start:
        raise ValueError("the file is empty")
    if start == npy.MAGIC_PREFIX:
        return {"": _array(stream, "the array", size, size if most is None else most)}
    if start[:2] != b"PK":
        raise ValueError("it is neither an .npy nor an .npz file")
    if most is None:
        most = size if stored_only else most_unpacked(size)
    return _members(stream, most, _METHODS[:1] if stored_only else _METHODS)


def _members(stream: IO[bytes], most: int, methods: Sequence[int]) -> dict[str, NDArray[Any]]:
    """The arrays of a zip file; together they have at most `most` bytes."""
    arrays: dict[str, NDArray[Any]] = {}
    with zipfile.ZipFile(stream) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name == member.filename:
                raise ValueError(f"member {name!r} is no .npy array")
            if name in arrays:
                raise ValueError(f"two members are named {name!r}")
            if member.compress_type not in _METHODS:
                raise ValueError(f"member {name!r} is packed by a method that numpy does not use")
            if member.compress_type not in methods:
                raise ValueError(f"{member.filename} is compressed")
            with archive.open(member) as content:
                arrays[name] = _array(content, f"array {name!r}", member.file_size, most)
            most -= arrays[name].nbytes
    if not arrays:
        raise ValueError("it holds no arrays")
    return arrays


def _array(stream: IO[bytes], name: str, size: int, most: int) -> NDArray[Any]:
    """The array of an .npy stream of `size` bytes, its header checked before it is allocated."""
    version = npy.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"{name} has version {version} of the .npy format; 1.0 and 2.0 are read")
    shape, by_columns, dtype = _header(stream, name, version)
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects; save numbers")
    length = math.prod(shape) * dtype.itemsize
    there = size - stream.tell()
    if min(shape, default=0) < 0 or length != there:
        raise ValueError(f"{name} has {there} bytes, {length} by its header")
    if length > most:
        raise ValueError(
            f"{name} unpacks to {length} bytes, {most} are allowed; save it without compression"
        )
    content = _exactly(stream, name, length)
    return np.ndarray(shape, dtype, content, order="F" if by_columns else "C")


def _header(
    stream: IO[bytes], name: str, version: tuple[int, int]
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        return _HEADERS[version](stream)
    except ValueError:
        # numpy's own sentence may advise to trust the file and unpickle it.
        raise ValueError(f"{name} has a damaged header") from None


def _exactly(stream: IO[bytes], name: str, length: int) -> NDArray[np.uint8]:
    content = np.empty(length, np.uint8)
    for start in range(0, length, _CHUNK):
        chunk = stream.read(min(_CHUNK, length - start))
        if len(chunk) != min(_CHUNK, length - start):
            raise ValueError(f"{name} is cut short")
        content[start : start + len(chunk)] = np.frombuffer(chunk, np.uint8)
    if stream.read(1):  # at the end zipfile compares the checksum
        raise ValueError(f"{name} is longer than its header says")
    return content


# Writing --------------------------------------------------------------------------------------


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that readers, a crash and a full disk leave the old content or the new.

    The content is written beside the file and on the disk before it takes the file's name. Drafts
    that killed processes left beside it are removed before, since they may fill the disk.

    Raises    OSError with the file's name where it cannot be written; the file is then as before.
    """
    _remove_abandoned(path)
    try:
        with _draft(path) as (file, draft):
            file.write(content)
            file.flush()
            # mkstemp makes files private; this one is as readable as the user's others.
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(file.fileno(), 0o666 & ~mask)
            os.fsync(file.fileno())
            os.replace(draft, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


def check_room(folder: Path, size: int) -> None:
    """Write so many bytes into a folder and remove them, so that a full disk is known before work.

    Raises    OSError with the folder's name where the disk does not take them.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for start in range(0, size, _CHUNK):
                file.write(bytes(min(_CHUNK, size - start)))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(folder)) from None


#: What a disk answers when it takes no more, or nothing from this user.
_REFUSALS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM}
)


def refusal(error: OSError) -> str:
    """Why a disk took or gave no file, in a sentence; "" for every other error.

    >>> refusal(OSError(errno.ENOSPC, "No space left on device", "r/page.html"))
    'r/page.html: No space left on device; make room, or name another folder'
    >>> refusal(ConnectionError("lost"))
    ''
    """
    if error.errno not in _REFUSALS:
        return ""
    return f"{error.filename or 'a file'}: {error.strerror}; make room, or name another folder"


@contextmanager
def _draft(path: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """A locked file beside `path`, which is removed if the block raises."""
    while True:
        handle, name = tempfile.mkstemp(".draft", f".{path.name}.", path.parent)
        draft = Path(name)
        with os.fdopen(handle, "wb") as file:
            with suppress(OSError):  # without locks nothing removes abandoned drafts
                lock(file, wait=True)
            if not os.fstat(handle).st_nlink:
                continue  # removed by another process before it was locked
            try:
                yield file, draft
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
            return


def lock(file: IO[Any], *, wait: bool) -> bool:
    """Lock a file until it is closed; False where another process has locked it.

    Raises    OSError where the system, or the file system, has no locks.
    """
    if fcntl is None:
        raise OSError(errno.ENOLCK, "this system has none")
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _remove_abandoned(path: Path) -> None:
    """Remove drafts of `path` whose process has ended: its lock went with it."""
    draft = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}\.draft")
    with suppress(OSError):
        for entry in os.scandir(path.parent):
            if draft.fullmatch(entry.name):
                with open(entry.path, "rb") as file:
                    if lock(file, wait=False):
                        os.unlink(entry.path)
