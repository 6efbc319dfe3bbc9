"""The file formats of MNIST and CIFAR-10: files are read at once and checked.

Errors name the file and the offset in its (unpacked) bytes.

Source    LeCun's MNIST page (IDX: two zero bytes, type code, number of axes, sizes big-endian);
          Krizhevsky's CIFAR page (records of a label and three planes of 32 × 32).
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["CLASSES", "RECORD", "read_cifar", "read_idx", "read_labels", "unpacked"]

Bytes = NDArray[np.uint8]

CLASSES = 10
#: A CIFAR-10 record: label, then red, green and blue planes.
RECORD = 1 + 3 * 32 * 32
#: Type code of unsigned bytes, the only one these files use.
_UNSIGNED_BYTE = 0x08
_STEP = 1 << 16


def unpacked(path: Path) -> bytes:
    """The bytes of a file, unpacked where its name ends in .gz; members follow each other.

    Raises    ValueError for packed data that are cut short, damaged, or followed by others.
    """
    packed = path.read_bytes()
    if path.suffix != ".gz":
        return packed
    unpacker, parts = zlib.decompressobj(wbits=31), []
    for start in range(0, len(packed), _STEP):
        piece = packed[start : start + _STEP]
        try:
            while piece:
                if unpacker.eof:
                    unpacker = zlib.decompressobj(wbits=31)
                parts.append(unpacker.decompress(piece))
                piece = unpacker.unused_data
        except zlib.error as error:
            raise ValueError(
                f"{path} is corrupt: packed data after offset {start} do not unpack ({error}); "
                "get the file again"
            ) from None
    if not unpacker.eof:
        raise ValueError(f"{path} is cut short: packed data end at offset {len(packed)}")
    return b"".join(parts)


def read_idx(path: Path, axes: int) -> Bytes:
    """An IDX file of unsigned bytes with that many axes.

    Raises    ValueError for another kind of file, and for one that is too short or too long.
    """
    data = unpacked(path)
    wanted = bytes((0, 0, _UNSIGNED_BYTE, axes))
    start = 4 + 4 * axes
    if data[:4] != wanted:
        raise ValueError(
            f"{path} is mislabelled: it begins with {data[:4].hex()} at offset 0, expected "
            f"{wanted.hex()} (IDX, unsigned bytes, {axes} {'axis' if axes == 1 else 'axes'})"
        )
    shape = [int.from_bytes(data[i : i + 4], "big") for i in range(4, start, 4)]
    expected = start + math.prod(shape)
    if len(data) < expected:
        raise ValueError(
            f"{path} is cut short: it ends at offset {len(data)}, expected {expected} bytes"
        )
    if len(data) > expected:
        raise ValueError(f"{path} has bytes after its data, from offset {expected} on")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def read_labels(path: Path) -> Bytes:
    """An IDX file of labels 0 … 9."""
    labels = read_idx(path, 1)
    _check_labels(path, labels, 8, 1)
    return labels


def read_cifar(path: Path) -> tuple[Bytes, Bytes]:
    """Images (n, 32, 32, 3) and labels (n) of a file with any number of records.

    Raises    ValueError for an incomplete record, and for a label above 9.
    """
    data = unpacked(path)
    count, rest = divmod(len(data), RECORD)
    if rest or not count:
        raise ValueError(
            f"{path} is cut short or no CIFAR-10 file: the record at offset {count * RECORD} has "
            f"{rest} of {RECORD} bytes"
        )
    records = np.frombuffer(data, np.uint8).reshape(count, RECORD)
    labels = records[:, 0]
    _check_labels(path, labels, 0, RECORD)
    planes = records[:, 1:].reshape(count, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels.copy()


def _check_labels(path: Path, labels: Bytes, start: int, stride: int) -> None:
    wrong = np.flatnonzero(labels >= CLASSES)
    if wrong.size:
        first = int(wrong[0])
        raise ValueError(
            f"{path} is mislabelled: label {labels[first]} at offset {start + stride * first}, "
            f"expected 0 to {CLASSES - 1}"
        )
