"""Sequential and compensated sums to nearest even, by the processor's additions of binary64.

The kernel sees what could make a difference (`fpsim.kernels.by_operation.nearest_sums`) and then
has no result.

Source    docs/semantics.md §4.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.by_operation.nearest_sums import (
    FEW,
    MANY,
    ChainLimits,
    few_chains,
    many_chains,
)
from fpsim.products.rows import origin, steps_of
from fpsim.records.formats import Format
from fpsim.records.rounding import RNE
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags
from fpsim.state.threads import run_blocks

__all__ = ["is_nearest", "nearest_sums"]

#: Additions of eight rows below which a second thread costs more than it gives.
_SMALLEST = 1 << 15


def is_nearest(settings: Settings, order: str) -> bool:
    """Whether sums in this order are chains to nearest even, of numbers with at most 24 digits."""
    return (
        order in ("sequential", "kahan")
        and settings.rounding == RNE
        and settings.subnormals == "keep"
        and settings.format.precision <= 24
        and settings.format.carrier == np.float32
    )


@lru_cache(maxsize=64)
def _limits(fmt: Format) -> NDArray[np.uint64]:
    limits = ChainLimits(
        lift=(53 - fmt.precision << 52) + (1 << 51),
        largest=int(np.float64(fmt.max).view(np.uint64)),
    )
    return np.array(limits, np.uint64)


def nearest_sums(
    rows: Carrier, fmt: Format, *, kahan: bool = False
) -> tuple[Carrier, ElementFlags] | None:
    """Sums of rows of two or more elements, and whether each is inexact; None where that is not
    all there is to say: infinities, NaN, and what overflows on its way.

    >>> from fpsim.records.formats import BINARY16
    >>> nearest_sums(np.float32([[2048, 1, 1]]), BINARY16)
    (array([2048.], dtype=float32), array([1], dtype=uint8))
    """
    outputs, n = rows.shape
    sums, inexact = np.empty(outputs, np.float64), np.zeros(outputs, np.uint8)
    kernel, lanes = (few_chains, FEW) if outputs <= FEW else (many_chains, MANY)

    def work(begin: int, end: int) -> int:
        first, last = begin * lanes, min(end * lanes, outputs)
        part = rows[first:last]
        strange: int = kernel(
            origin(part), part.shape, steps_of(part), kahan, _limits(fmt), sums[first:last],
            inexact[first:last],
        )
        return strange

    if run_blocks(work, 0, -(-outputs // lanes), max(1, _SMALLEST // n)):
        return None
    return sums.astype(rows.dtype), inexact
