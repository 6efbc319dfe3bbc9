"""Pieces: the wire record of packed codes, with everything that tells which codes they are.

A record is a header of 72 bytes and the payload, all little-endian:

| bytes | field | |
|---|---|---|
| 0 … 3 | magic | "FPS1" |
| 4 … 27 | format | name of the codes' format, padded with zeros; "bytes" for what is no tensor |
| 28 … 35 | elements | of the tensor, or bytes |
| 36 … 43 | step | t |
| 44 … 51 | collective | number of the collective, the same on every worker |
| 52 … 59 | chunk | number of the part of the tensor |
| 60 … 67 | hop | number of the value in the part's tree |
| 68 … 71 | checksum | CRC-32 over the bytes before and the payload |

The checksum is CRC-32 of the standard library (zlib, ISO 3309). CRC-32C would need a package for
every transport, threads too, as all have this record; both find every error of up to 32
consecutive bits. The package google-crc32c reads 10 GB/s where zlib reads 3.7, but takes no view of
the payload, so a copy comes before it: of 10 MB, 2.7 ms become 1.9, of 130 ms or more that they
travel.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

__all__ = ["BYTES", "HEADER", "Label", "PieceError", "pack", "read", "unpack"]

#: The format of what is no tensor; its elements are bytes.
BYTES = "bytes"

_MAGIC = b"FPS1"
_FIELDS = struct.Struct("<4s24s5Q")
_CHECKSUM = struct.Struct("<I")
#: Bytes before the payload.
HEADER = _FIELDS.size + _CHECKSUM.size


class PieceError(ValueError):
    """A piece is damaged, or is not the expected one."""


class Label(NamedTuple):
    """Which codes a piece holds; the fields of the record in the header of this module."""

    format: str
    elements: int
    step: int
    collective: int
    chunk: int = 0
    hop: int = 0


def pack(label: Label, payload: bytes | memoryview) -> bytes:
    """The record as bytes.

    >>> len(pack(Label("binary16", 2, 0, 0), b"\\x00\\x3c\\x00\\x40")) - HEADER
    4
    """
    name = label.format.encode()
    if len(name) > 24:
        raise ValueError(f"format={label.format!r} is longer than the 24 bytes of a record")
    head = _FIELDS.pack(_MAGIC, name, *label[1:])
    checksum = zlib.crc32(payload, zlib.crc32(head))
    return b"".join((head, _CHECKSUM.pack(checksum), payload))


def unpack(message: bytes, expected: Label, width: int) -> memoryview:
    """The payload of the expected piece.

    width     bytes of an element.

    Raises    PieceError, with expected and received, for anything else.

    >>> message = pack(Label("binary16", 2, 0, 7), bytes(4))
    >>> unpack(message, Label("binary16", 3, 0, 7), 2)
    Traceback (most recent call last):
    ...
    ipu.members.pieces.PieceError: elements is 2, expected 3
    """
    label, payload = read(message)
    wrong = [
        f"{name} is {received}, expected {awaited}"
        for name, received, awaited in zip(Label._fields, label, expected, strict=True)
        if received != awaited
    ]
    if wrong:
        raise PieceError("; ".join(wrong))
    wanted = expected.elements * width
    if len(payload) != wanted:
        kind = f"{expected.elements} elements of {expected.format}"
        raise PieceError(f"{len(payload)} bytes, expected {wanted}: {kind}")
    return payload


def read(message: bytes) -> tuple[Label, memoryview]:
    """Label and payload of a piece whose checksum is right.

    Raises    PieceError for what is cut short or damaged.
    """
    view = memoryview(message)
    if len(view) < HEADER or view[:4] != _MAGIC:
        raise PieceError(f"{len(view)} bytes are no piece of this protocol")
    (stored,) = _CHECKSUM.unpack(view[_FIELDS.size : HEADER])
    actual = zlib.crc32(view[HEADER:], zlib.crc32(view[: _FIELDS.size]))
    if stored != actual:
        raise PieceError(f"checksum is {actual:08x}, expected {stored:08x}: it is damaged")
    _, name, *numbers = _FIELDS.unpack(view[: _FIELDS.size])
    return Label(name.rstrip(b"\0").decode("utf-8", "replace"), *numbers), view[HEADER:]
