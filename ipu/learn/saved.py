"""What the tape keeps for the backward pass, in as few bytes as the format has.

Arrays compute as native floats: four bytes for a value of two, or of one. While they wait for their
backward rule they are kept as codes; every code comes back as it was, NaNs with their payloads.
Outside of training, where few tapes are read, arrays are kept as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array, Computes
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.elementwise.selection import Keys
from fpsim.records.formats import Format

__all__ = ["Packed", "Reading", "memory", "packed", "packing", "positive_keys"]

#: Elements below which codes save less than two conversions cost.
_FEW = 1 << 10


_is_packing: ContextVar[bool] = ContextVar("packing", default=False)


@contextmanager
def packing() -> Iterator[None]:
    """Inside, arrays that a tape keeps become codes."""
    token = _is_packing.set(True)
    try:
        yield
    finally:
        _is_packing.reset(token)


class Packed(NamedTuple):
    """Codes of an array, and the context that computes with it."""

    codes: NDArray[np.unsignedinteger[Any]]
    context: Computes

    def array(self) -> Array:
        """The array as it was."""
        return Array(from_codes(self.codes, self.context.settings.format), self.context)


def packed(x: Array) -> Array | Packed:
    """The array as codes; itself outside of `packing`, where codes are no smaller, or of a part of
    another's memory.

    >>> import fpsim as fp
    >>> x = fp.Context(fp.BINARY16).array(np.linspace(0, 1, 4096))
    >>> with packing():
    ...     kept = packed(x)
    >>> kept.codes.nbytes, np.array_equal(kept.array().values, x.values)
    (8192, True)
    """
    carrier = x.carrier
    owned = carrier.flags.c_contiguous and carrier.size >= _FEW
    if not _is_packing.get() or not owned or x.format.code_dtype.itemsize >= carrier.itemsize:
        return x
    return Packed(to_codes(carrier, x.format), x.context)


def memory(kept: Array | Packed) -> tuple[int, int]:
    """A number that names the memory of what is kept, and its bytes in the packed format."""
    if isinstance(kept, Packed):
        return id(kept.codes), kept.codes.nbytes
    return id(kept.carrier), kept.nbytes


@lru_cache(maxsize=64)
def _largest_code(fmt: Format) -> int:
    largest = np.inf if fmt.has_infinity else fmt.max
    return int(to_codes(np.array(largest, fmt.carrier), fmt))


class Reading(Sequence[Any]):
    """What a forward rule has saved, as its backward rules read it.

    Codes become an array when a rule reads them: a gradient to images, which needs no images but
    their shape, runs without them.

    >>> import fpsim as fp
    >>> x = fp.Context(fp.BINARY16).array(np.ones(4096))
    >>> with packing():
    ...     saved = Reading((packed(x), "SAME"))
    >>> saved[1], saved[0].shape, saved[0] is saved[0]
    ('SAME', (4096,), True)
    """

    __slots__ = ("_items",)

    def __init__(self, saved: tuple[Any, ...]) -> None:
        self._items = list(saved)

    def __len__(self) -> int:
        return len(self._items)

    def kept(self, index: int) -> Any:
        """An item as it is kept."""
        return self._items[index]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        item = self._items[index]
        if isinstance(item, Packed):
            item = self._items[index] = item.array()
        return item


def positive_keys(saved: Sequence[Any], index: int) -> tuple[Keys, int]:
    """Of an array that is saved, its codes or bits, and the largest one of a positive number.

    Nothing is decoded to tell where values are positive.
    """
    item = saved.kept(index) if isinstance(saved, Reading) else saved[index]
    if isinstance(item, Packed):
        return item.codes, _largest_code(item.context.settings.format)
    bits = np.asarray(item.carrier, order="C").view(f"u{item.carrier.itemsize}")
    return bits, int(np.array(np.inf, item.carrier.dtype).view(bits.dtype))
