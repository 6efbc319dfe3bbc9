"""The file formats of MNIST and CIFAR-10: read no further than their header or plan allows.

Errors name the file and the offset in its (unpacked) bytes.

Source    LeCun's MNIST page (IDX: two zero bytes, type code, number of axes, sizes big-endian);
          Krizhevsky's CIFAR page (records of a label and three planes of 32 × 32).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CLASSES", "RECORD", "DataFileError", "read_cifar", "read_idx", "read_labels", "unpacked",
]

Bytes = NDArray[np.uint8]

CLASSES = 10
#: A CIFAR-10 record: label, then red, green and blue planes.
RECORD = 1 + 3 * 32 * 32
#: Type code of unsigned bytes, the only one these files use.
_UNSIGNED_BYTE = 0x08
_STEP = 1 << 16
#: More samples than any of these data sets has.
_MOST_SAMPLES = 100_000
_MOST_BYTES = 1 << 30


class DataFileError(ValueError):
    """A file of a data set that is cut short, corrupt, or not what its name says."""


def unpacked(path: Path, most: int = _MOST_BYTES) -> bytes:
    """The first bytes of a file, unpacked where its name ends in .gz; members follow each other.

    most      bytes to read and unpack; where a file has them, the rest is not looked at.
    Raises    DataFileError for packed data that are cut short, damaged, or followed by others.
    """
    with path.open("rb") as stream:
        if path.suffix != ".gz":
            return stream.read(most)
        return b"".join(_pieces(path, stream, most))


def _pieces(path: Path, stream: BinaryIO, most: int) -> Iterator[bytes]:
    """What the members unpack to, a step at a time and `most` bytes in all."""
    unpacker, position = zlib.decompressobj(wbits=31), 0
    while packed := stream.read(_STEP):
        try:
            while packed and most:
                if unpacker.eof:
                    unpacker = zlib.decompressobj(wbits=31)
                piece = unpacker.decompress(packed, most)
                most -= len(piece)
                yield piece
                packed = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
        except zlib.error as error:
            raise DataFileError(
                f"{path} is corrupt: packed data after offset {position} do not unpack ({error}); "
                "get the file again"
            ) from None
        if not most:
            return
        position += _STEP if len(packed) else 0
    if not unpacker.eof:
        raise DataFileError(f"{path} is cut short: packed data end at offset {stream.tell()}")


def read_idx(path: Path, sizes: Sequence[int | None]) -> Bytes:
    """An IDX file of unsigned bytes with these sizes along its axes, None for any number.

    Raises    DataFileError for another kind of file, for other sizes, for more than 100 000
              samples, and for a file that is too short or too long; nothing is unpacked beyond its
              header's sizes.
    """
    axes = len(sizes)
    start = 4 + 4 * axes
    head = unpacked(path, start)
    if not head:
        raise DataFileError(f"{path} is empty; get the file again")
    wanted = bytes((0, 0, _UNSIGNED_BYTE, axes))
    if head[:4] != wanted:
        raise DataFileError(
            f"{path} is mislabelled: it begins with {head[:4].hex()} at offset 0, expected "
            f"{wanted.hex()} (IDX, unsigned bytes, {axes} {'axis' if axes == 1 else 'axes'})"
        )
    shape = [int.from_bytes(head[i : i + 4], "big") for i in range(4, len(head), 4)]
    if len(head) < start:
        raise DataFileError(f"{path} is cut short: it ends at offset {len(head)}, in its header")
    _check_sizes(path, shape, sizes)
    expected = start + math.prod(shape)
    data = unpacked(path, expected + 1)
    if len(data) < expected:
        raise DataFileError(
            f"{path} is cut short: it ends at offset {len(data)}, expected {expected} bytes"
        )
    if len(data) > expected:
        raise DataFileError(f"{path} has bytes after its data, from offset {expected} on")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _check_sizes(path: Path, shape: Sequence[int], sizes: Sequence[int | None]) -> None:
    fits = all(size in (None, n) for n, size in zip(shape, sizes, strict=True))
    if not (fits and 1 <= shape[0] <= _MOST_SAMPLES):
        expected = " × ".join("n" if size is None else str(size) for size in sizes)
        raise DataFileError(
            f"{path} is mislabelled: it announces {' × '.join(map(str, shape))} at offset 4, "
            f"expected {expected} with n from 1 to {_MOST_SAMPLES}"
        )


def read_labels(path: Path) -> Bytes:
    """An IDX file of labels 0 … 9."""
    labels = read_idx(path, (None,))
    _check_labels(path, labels, 8, 1)
    return labels


def read_cifar(path: Path) -> tuple[Bytes, Bytes]:
    """Images (n, 32, 32, 3) and labels (n) of a file with any number of records.

    Raises    DataFileError for an incomplete record, and for a label above 9.
    """
    data = unpacked(path, _MOST_SAMPLES * RECORD + 1)
    if len(data) > _MOST_SAMPLES * RECORD:
        raise DataFileError(f"{path} is no CIFAR-10 file: it has more than {_MOST_SAMPLES} records")
    count, rest = divmod(len(data), RECORD)
    if rest or not count:
        raise DataFileError(
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
        raise DataFileError(
            f"{path} is mislabelled: label {labels[first]} at offset {start + stride * first}, "
            f"expected 0 to {CLASSES - 1}"
        )
