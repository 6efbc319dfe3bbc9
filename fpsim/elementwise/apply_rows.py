"""One operation on the rows of arrays, each with random bits and flags of its own.

A row is what another machine would compute alone: values and flags are those of `apply` on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import KernelCall
from fpsim.kernels.elementwise import step
from fpsim.kernels.random.words import NO_WORDS
from fpsim.records.settings import ZERO_OR_NORMAL, Settings
from fpsim.records.types import Carrier, Shape
from fpsim.state.threads import run_blocks

__all__ = ["RowKeys", "apply_rows", "flags_of_rows", "has_rows"]

#: Keys of the rows, number of the operation, index of each row's first element in the operation.
RowKeys = tuple[NDArray[np.uint64], int, int]

#: Elements below which a second thread costs more than it gives.
_SMALLEST = 1 << 16

_NO_FLAGS = np.zeros(1, np.uint8)


def has_rows(settings: Settings) -> bool:
    """Whether `apply_rows` has operations of these settings."""
    return not settings.native and settings.subnormals != ZERO_OR_NORMAL


def apply_rows(
    operation: str, operands: Sequence[Carrier], settings: Settings, shape: Shape, rows: int,
    keys: RowKeys | None = None,
) -> tuple[Carrier, NDArray[np.int64]]:
    """An operation of `apply` on so many rows, and the flags of each.

    keys    of a stochastic rounding.

    Shapes    operands (rows or 1, elements or 1), the first one of all elements; the result
              (rows, *shape).

    >>> from fpsim.records.formats import BINARY16
    >>> x, y = np.float32([[1], [2]]), np.float32([[3]])
    >>> values, flags = apply_rows("divide", [x, y], Settings(BINARY16), (1,), 2)
    >>> values.tolist(), flags.tolist()
    ([[0.333251953125], [0.66650390625]], [1, 1])
    """
    out = np.empty((rows, *shape), settings.format.carrier)
    flags = np.zeros(rows, np.int64)
    key = (operation, max(x.itemsize for x in operands), step.FLAGS_STICKY, False)
    call = settings.calls.get(key)
    if call is None:
        call = settings.calls[key] = KernelCall(operation, settings, *key[1:])
    loop, constants, flat = call.loop, call.constants, out.reshape(rows, -1)
    seeds, number, first = keys or (np.zeros(rows, np.uint64), 0, 0)
    three = [*operands, *[operands[0]] * (3 - len(operands))]
    steps = [int(len(x) > 1) for x in three]
    number_of_call = np.uint64(number)

    def work(a: int, b: int) -> int:
        for r in range(a, b):
            x, y, z = (x[r * step] for x, step in zip(three, steps, strict=True))
            flags[r] = loop(
                x, y, z, flat[r], _NO_FLAGS, NO_WORDS, constants, first, seeds[r], number_of_call,
                False,
            )
        return 0

    size = flat.shape[1]
    run_blocks(work, 0, rows, max(1, _SMALLEST // size), 1)
    return out, flags


def flags_of_rows(element_flags: NDArray[np.uint8]) -> NDArray[np.int64]:
    """All flags of each row together.

    >>> flags_of_rows(np.uint8([[1, 2], [0, 4]])).tolist()
    [3, 4]
    """
    rows = len(element_flags)
    if not element_flags.any():
        return np.zeros(rows, np.int64)
    flags: NDArray[np.int64] = np.bitwise_or.reduce(
        element_flags.reshape(rows, -1), axis=1, dtype=np.int64
    )
    return flags
