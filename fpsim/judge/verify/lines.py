"""Lines of hexadecimal fields of known widths, read by a compiled loop.

Source    the output format of Berkeley testfloat_gen: fields of fixed width, one space between.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.compiling import compiled
from fpsim.state.files import most_unpacked

__all__ = ["blocks", "parse", "text_lines"]

#: Bytes read at a time; a line longer than this is no line of vectors.
BLOCK = 1 << 22

NEWLINE, RETURN, SPACE = 10, 13, 32

#: What reading damaged gzip raises.
_DAMAGE = (OSError, EOFError, zlib.error)


class _Packed:
    """A stream whose bytes are counted as they are read."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.size = 0

    def read(self, n: int = -1) -> bytes:
        data: bytes = self.stream.read(n)
        self.size += len(data)
        return data


def _chunks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The content of a stream, plain or gzip, which may not unpack to much more than its size."""
    buffered: Any = stream if hasattr(stream, "peek") else io.BufferedReader(cast(Any, stream))
    if buffered.peek(2)[:2] != b"\x1f\x8b":
        while chunk := buffered.read(BLOCK):
            yield chunk
        return
    packed, unpacked = _Packed(buffered), 0
    source = gzip.GzipFile(fileobj=cast(Any, packed))
    while chunk := source.read(BLOCK):
        unpacked += len(chunk)
        if unpacked > most_unpacked(packed.size):
            raise ValueError(
                f"{name} unpacks to more than {most_unpacked(packed.size)} bytes from "
                f"{packed.size}; if it holds vectors, unpack it first: gunzip"
            )
        yield chunk


def _blocks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    rest = b""
    for chunk in _chunks(stream, name):
        lines, newline, tail = (rest + chunk).rpartition(b"\n")
        if newline:
            yield lines + newline
        rest = tail
        if len(rest) > BLOCK:
            break
    if rest:
        yield rest + b"\n"


def blocks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Whole lines of a stream, plain or gzip, some megabytes at a time; each ends in a newline.

    Raises    ValueError where compressed data is damaged, cut short, or swells without end.
    """
    try:
        yield from _blocks(stream, name)
    except _DAMAGE as error:
        raise ValueError(f"{name} cannot be read ({error})") from None


def text_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Lines of a text in ASCII, plain or gzip, without their ends.

    Raises    ValueError for other bytes, and as `blocks` does.

    >>> list(text_lines(io.BytesIO(gzip.compress(b"one\\ntwo")), "these"))
    ['one', 'two']
    """
    try:
        for block in _blocks(stream, name):
            yield from block.decode("ascii").splitlines()
    except (*_DAMAGE, UnicodeDecodeError) as error:
        raise ValueError(f"{name} is no text of vectors ({error})") from None


def parse(block: bytes, widths: Sequence[int]) -> tuple[NDArray[np.uint64], int]:
    """Columns of a block of lines, and the index of the first malformed line (or -1).

    Shapes    the columns have shape (fields, lines before the malformed one).

    >>> columns, bad = parse(b"3C00 01\\n3c01 00\\n3C0 00\\n", (4, 2))
    >>> [hex(code) for code in columns[0]], bad
    (['0x3c00', '0x3c01'], 2)
    """
    text = np.frombuffer(block, np.uint8)
    shortest = sum(widths) + len(widths)
    columns = np.empty((len(widths), text.size // shortest + 1), np.uint64)
    n, bad = _parse(text, np.array(widths), columns)
    return columns[:, :n], n if bad else -1


@partial(compiled, guarded=False)
def _parse(text: Any, widths: Any, columns: Any) -> Any:
    """Lines read, and whether the next one is malformed."""
    i = n = 0
    fields = widths.shape[0]
    while i < text.shape[0]:
        for k in range(fields):
            value = np.uint64(0)
            for _ in range(widths[k]):
                c = np.int64(text[i])
                digit = c - 48
                if digit > 9:
                    digit = (c & ~32) - 55
                    if digit < 10:
                        return n, True
                if digit < 0 or digit > 15:
                    return n, True
                value = (value << np.uint64(4)) | np.uint64(digit)
                i += 1
            columns[k, n] = value
            if k == fields - 1 and text[i] == RETURN:
                i += 1
            if text[i] != (SPACE if k < fields - 1 else NEWLINE):
                return n, True
            i += 1
        n += 1
    return n, False
