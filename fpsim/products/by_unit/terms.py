"""The terms of a product in the order in which a unit takes them.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.types import Offsets

__all__ = ["Terms", "all_terms", "pairs"]


class Terms(NamedTuple):
    """Some terms of a product: their offsets in the left operand, their rows of the right one."""

    offsets: Offsets
    rows: Offsets  # -1 where there is none
    first: int  # number of the first


def all_terms(settings: UnitSettings, offsets: Offsets, multiple: int) -> Terms:
    """Every term in the order the unit takes them, zeros at the end up to a multiple."""
    k = len(offsets)
    if k % multiple == 0 and settings.unit.order == "ascending":
        return Terms(offsets, _ascending(k), 0)
    rows, columns = _rows(settings, k, multiple)
    return Terms(offsets[columns], rows, 0)


@lru_cache(maxsize=64)
def _rows(settings: UnitSettings, k: int, multiple: int) -> tuple[Offsets, Offsets]:
    """The number of each term, -1 of zeros, and the term whose offset it has."""
    unit, rows = settings.unit, np.arange(-(-k // multiple) * multiple)
    if unit.order == "pairs":
        rows = rows[pairs(settings.piece(k), len(rows))]
    rows[rows >= k] = -1
    return rows, np.maximum(rows, 0)


@lru_cache(maxsize=64)
def _ascending(n: int) -> Offsets:
    return np.arange(n)


@lru_cache(maxsize=64)
def pairs(channels: int, k: int) -> NDArray[np.intp]:
    """Of each pass the terms with bit 1 of their number clear, then the others."""
    number = np.arange(k)
    return np.argsort(number // channels * 2 + (number >> 1 & 1), kind="stable")
