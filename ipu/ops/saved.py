"""What waits in a training step, in as few bytes as the format has.

Arrays compute as native floats: four bytes for a value of two, or of one. While they wait for their
backward rule, or as gradients for their update, they are kept as codes, in pages of their own;
every code comes back as it was, NaNs with their payloads. Outside of training, where few tapes are
read, arrays are kept as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.elementwise.selection import Keys
from fpsim.records.formats import Format
from ipu.machine.assigned import Bound
from ipu.machine.stacked import StackedArray
from ipu.ops.heap import PAGES

__all__ = ["Packed", "Reading", "is_packing", "memory", "packed", "packing", "positive_keys"]

#: Elements below which codes save less than two conversions cost.
_FEW = 1 << 10


_packing: ContextVar[bool] = ContextVar("packing", default=False)


def is_packing() -> bool:
    """Whether arrays that wait become codes; then a tape is read once."""
    return _packing.get()


def packing() -> Bound[bool]:
    """Inside, arrays that a tape keeps become codes, and gradients that wait for their update.

    A tape is read once: what it keeps for a backward rule is freed when the rule has run.
    """
    return Bound(_packing, True)


class Packed(Array):
    """An array as codes: its carrier is computed at every use, and is not its memory.

    >>> import fpsim as fp
    >>> with packing():
    ...     x = packed(fp.Context(fp.BINARY16).array(np.arange(2048.0)))
    >>> (x + x).values[:3].tolist(), x.stored.dtype
    ([0.0, 2.0, 4.0], dtype('uint16'))
    """

    __slots__ = ("stored",)

    def __init__(self, stored: NDArray[np.unsignedinteger[Any]], context: Any) -> None:
        self.stored = stored
        self.context = context

    @property
    def carrier(self) -> NDArray[Any]:  # type: ignore[override]
        return from_codes(self.stored, self.format)

    @property
    def values(self) -> NDArray[Any]:
        values = self.carrier
        values.flags.writeable = False
        return values

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.stored.shape

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.stored.size

    def array(self) -> Array:
        """The array as it was."""
        return Array(self.carrier, self.context)


def packed(x: Array) -> Array:
    """The array as codes; itself outside of `packing`, where codes are no smaller, or of a part of
    another's memory. Codes lie in pages of their own, so that arrays which come and go find the
    room that others have left.

    >>> import fpsim as fp
    >>> x = fp.Context(fp.BINARY16).array(np.linspace(0, 1, 4096))
    >>> with packing():
    ...     kept = packed(x)
    >>> kept.stored.nbytes, np.array_equal(kept.array().values, x.values)
    (8192, True)
    """
    if isinstance(x, (Packed, StackedArray)) or x.size < _FEW or not is_packing():
        return x
    carrier, fmt = x.carrier, x.format
    if not carrier.flags.c_contiguous or fmt.code_dtype.itemsize >= carrier.itemsize:
        return x
    codes = PAGES.array(carrier.shape, fmt.code_dtype)
    return Packed(to_codes(carrier, fmt, out=codes), x.context)


def memory(array: Array) -> tuple[int, int]:
    """A number that names the memory of what is kept, and its bytes in the packed format."""
    if isinstance(array, Packed):
        return id(array.stored), array.stored.nbytes
    return id(array.carrier), array.storage_bytes


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

    def __init__(self, saved: Sequence[Any]) -> None:
        self._items = list(saved)

    def __len__(self) -> int:
        return len(self._items)

    def item(self, index: int) -> Any:
        """An item as it is kept."""
        return self._items[index]

    def __iter__(self) -> Iterator[Any]:
        for i, item in enumerate(self._items):
            if isinstance(item, Packed):
                self._items[i] = item.array()
        return iter(self._items)

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
    item = saved.item(index) if isinstance(saved, Reading) else saved[index]
    if isinstance(item, Packed):
        return item.stored, _largest_code(item.context.core.settings.format)
    numbers = item.stack if isinstance(item, StackedArray) else item.carrier
    bits = np.asarray(numbers, order="C").view(f"u{numbers.itemsize}")
    return bits, int(np.array(np.inf, numbers.dtype).view(bits.dtype))
