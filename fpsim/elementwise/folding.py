"""Sums and products so far, and into rows, in index order, where the processor rounds them.

Source    docs/semantics.md §6 (running results, scattering).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.constants import processor_constants, processor_status
from fpsim.kernels.elementwise.folding import folding_kernel, running_kernel
from fpsim.kernels.elementwise.special import ADD, MULTIPLY
from fpsim.kernels.rounding.rule import RoundingRule
from fpsim.records.settings import ZERO_OR_NORMAL, Settings
from fpsim.records.types import Carrier
from fpsim.state.memory import flat_in_memory

__all__ = ["ProcessorFold", "processor_fold"]

_CODES = {"add": ADD, "multiply": MULTIPLY}


class ProcessorFold(NamedTuple):
    """An operation as the processor rounds it.

    code      of the operation, as kernels know it.
    status    bits of the status register.
    nan       what a NaN becomes, and `nan_flags`, which it raises.
    """

    code: int
    status: int
    nan: np.float32
    nan_flags: int

    def running(
        self, x: Carrier, axis: int, *, start: float, exclusive: bool = False, reverse: bool = False
    ) -> tuple[Carrier, int]:
        """Results so far along an axis, and the flags of all operations.

        exclusive   without the element itself: the first result is `start`.
        reverse     from the last element on.

        >>> from fpsim.records.formats import BINARY32
        >>> fold = processor_fold("add", Settings(BINARY32))
        >>> fold and fold.running(np.float32([[1, 2, 3]]), 1, start=0.0)
        (array([[1., 3., 6.]], dtype=float32), 0)
        """
        shape = x.shape
        out = np.empty(shape, np.float32)
        if x.size == 0:
            return out, 0
        extents = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
        flags: int = running_kernel(self.code)(
            flat_in_memory(x), out.reshape(-1), extents, reverse, exclusive, np.float32(start),
            self.status, self.nan, self.nan_flags,
        )
        return out, flags

    def fold(
        self, total: Carrier, rows: NDArray[np.integer[Any]], values: Carrier, *,
        tells: bool = False,
    ) -> tuple[Carrier, int]:
        """total[rows[p]] ∘= values[p] in place, for one p after the other; flags of all.

        tells    the first result has what was in those rows before; else it has no rows.

        Shapes    total (rows, …), values (p, …), both contiguous.
        Raises    IndexError for what is no row.
        """
        n = len(rows)
        width = math.prod(total.shape[1:])
        if n and not 0 <= rows.min() <= rows.max() < len(total):
            raise IndexError(f"rows go from {rows.min()} to {rows.max()}; there are {len(total)}")
        before = np.empty((n if tells else 0, width), np.float32)
        if n == 0 or width == 0:
            return before, 0
        flags: int = folding_kernel(self.code)(
            total.reshape(-1, width), flat_in_memory(values).reshape(n, width),
            np.ascontiguousarray(rows, np.int64), before, self.status, self.nan, self.nan_flags,
        )
        return before, flags


@lru_cache(maxsize=1024)
def processor_fold(operation: str, settings: Settings) -> ProcessorFold | None:
    """"add" or "multiply" in these settings; None where the processor rounds in another way."""
    if settings.subnormals == ZERO_OR_NORMAL or settings.native:
        return None
    status = processor_status(operation, settings, settings.format.carrier.itemsize)
    if status < 0:
        return None
    rule = RoundingRule(*processor_constants(settings).tolist())
    nan = np.uint32(rule.nan_set).view(np.float32)
    return ProcessorFold(_CODES[operation], status, nan, rule.nan_flags)
