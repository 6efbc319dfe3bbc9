"""Lines of hexadecimal fields of known widths, read by a compiled loop.

Source    the output format of Berkeley testfloat_gen: fields of fixed width, one space between.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["blocks", "parse"]

#: Bytes read at a time; a line longer than this is no line of vectors.
BLOCK = 1 << 22

NEWLINE, RETURN, SPACE = 10, 13, 32


def blocks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Whole lines of a stream, plain or gzip, some megabytes at a time; each ends in a newline.

    Raises    ValueError where compressed data is damaged or cut short.
    """
    buffered: Any = stream if hasattr(stream, "peek") else io.BufferedReader(cast(Any, stream))
    packed = buffered.peek(2)[:2] == b"\x1f\x8b"
    source: Any = gzip.GzipFile(fileobj=buffered) if packed else buffered
    rest = b""
    try:
        while chunk := source.read(BLOCK):
            whole, newline, tail = (rest + chunk).rpartition(b"\n")
            if newline:
                yield whole + newline
            rest = tail
            if len(rest) > BLOCK:
                break
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{name} cannot be read ({error})") from None
    if rest:
        yield rest + b"\n"


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


@njit(nogil=True, cache=True, error_model="numpy")
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
