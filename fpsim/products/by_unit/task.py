"""What a fast engine hands to the loop of tiles: a variant, its constants, how operands are made.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fpsim.kernels.by_unit.panels import Shift
from fpsim.kernels.by_unit.terms import COLUMNS
from fpsim.kernels.by_unit.tiles import EXACT, FLAG, PARTIALS, UNGUARDED, TileVariant, tile_kernel
from fpsim.kernels.rounding.store import BY_INTEGERS, LOUD, QUIET
from fpsim.kernels.target import HAS_ADDERS, HAS_FMA, HAS_QUIET_ADD, PRODUCT_BITS
from fpsim.products.by_unit.unit_settings import Store, UnitSettings
from fpsim.records.types import Carrier, Shape

__all__ = [
    "FLOAT", "HAS_FMA", "WORD", "Constants", "OperandTable", "TileTask", "room", "tile_variant",
]

#: Bytes of each of their arrays that a thread keeps from product to product, at most.
_KEPT = 8 << 20

#: Views of this memory that a thread keeps, which are made anew in ten times the time.
_MOST_VIEWS = 256

Constants = NDArray[Any]

#: Stores' constants of a kernel that has none, by the width of its lanes.
NO_STORE: dict[int, Constants] = {
    32: np.zeros(64, np.uint32),
    64: np.zeros(64, np.uint64),
}

#: Types of values and of exponent fields, by their bits.
FLOAT: dict[int, Any] = {0: np.float32, 32: np.float32, 64: np.float64}
WORD: dict[int, Any] = {0: np.uint32, 32: np.uint32, 64: np.uint64}


@dataclass(frozen=True)
class OperandTable:
    """How an operand is prepared."""

    values: int  # bits of each; 0: the operand's own serve
    exponents: int  # bits of each, or 0
    shift: Shift

    @cached_property
    def bytes(self) -> int:
        """Of one number."""
        return (self.values + self.exponents) // 8

    def room(self, name: str, shape: Shape) -> tuple[Carrier, Constants]:
        """For values and exponents."""
        values, fields = FLOAT[self.values], WORD[self.exponents]
        none = len(shape)
        return (
            room(f"{name} values", shape, values) if self.values else nothing(values, none),
            room(f"{name} fields", shape, fields) if self.exponents else nothing(fields, none),
        )

    @cached_property
    def copied(self) -> OperandTable:
        """The same where the operand's own numbers do not serve: they lie elsewhere."""
        return self if self.values else replace(self, values=32)


@cache
def nothing(dtype: Any, ndim: int) -> NDArray[Any]:
    """An empty array, for kernels that are given none."""
    return np.empty((0,) * ndim, dtype)


_rooms = threading.local()


def room(name: str, shape: Shape, dtype: DTypeLike) -> NDArray[Any]:
    """Memory of this thread, not initialised, the same again if it is not much."""
    rooms: dict[Any, NDArray[Any]] = _rooms.__dict__  # by name: memory; by all three: views of it
    key = name, shape, dtype
    view = rooms.get(key)
    if view is not None:
        return view
    size: int = math.prod(shape) * np.dtype(dtype).itemsize
    if size > _KEPT:
        return np.empty(shape, dtype)
    room = rooms.get(name)
    if room is None or room.size < size or len(rooms) >= _MOST_VIEWS:
        for old in [k for k in rooms if isinstance(k, tuple)]:
            del rooms[old]  # views keep memory alive
    if room is None or room.size < size:
        room = rooms[name] = np.empty(size, np.uint8)
    view = rooms[key] = room[:size].view(dtype).reshape(shape)
    return view


@dataclass(frozen=True, eq=False)
class TileTask:
    """A product as the loop of tiles takes it."""

    variant: TileVariant
    width: int  # of the lanes
    store: Constants
    numbers: Constants
    left: OperandTable
    right: OperandTable

    @cached_property
    def terms(self) -> int:
        """What the terms of a product are a multiple of."""
        return self.variant.terms * self.variant.calls

    @cached_property
    def loop(self) -> Any:
        """The compiled loop of tiles."""
        return tile_kernel(self.variant)

    @cached_property
    def lanewise(self) -> TileTask:
        """The same where each column has left factors of its own."""
        return replace(self, variant=self.variant._replace(lanewise=True))

    @cached_property
    def height(self) -> int:
        """Rows of a tile."""
        return self.variant.vectors * PRODUCT_BITS // self.width // COLUMNS

    @cached_property
    def zero(self) -> Constants:
        """One zero as wide as a lane."""
        return NO_STORE[self.width][:1]


def _vectors(kind: int) -> int:
    """Vectors of a tile: in sixteen registers twelve sums stay, if a call needs few others."""
    return 12 if kind == EXACT and PRODUCT_BITS < 512 else 8


def tile_variant(
    kind: int, settings: UnitSettings, store: Store | None, low: bool, width: int, *,
    guard: int = UNGUARDED, sums: int = 0, calls: int | None = None,
) -> tuple[TileVariant, Constants]:
    """What is compiled in, and the constants of the stores.

    Stores that cannot overflow take fewer steps; a guard sees the others.

    calls    of a pass; default: those of the unit.
    """
    unit, quiet = settings.unit, QUIET if HAS_QUIET_ADD else LOUD
    if guard & FLAG and not HAS_QUIET_ADD:
        quiet = BY_INTEGERS
    variant = TileVariant(
        kind, unit.terms, calls or unit.chain, guard, False, 0, 0, False, False, quiet, sums,
        HAS_FMA, HAS_ADDERS and HAS_QUIET_ADD, _vectors(kind),
    )
    if store is None:
        return variant, NO_STORE[width]
    plan = store.wide if width == 64 else store.narrow
    guard |= 0 if plan.flush else PARTIALS
    variant = variant._replace(
        guard=guard, store=True, mode=plan.mode, residual=plan.residual,
        supplied=plan.stochastic and low, wide=plan.stochastic and plan.whole_words,
    )
    return variant, plan.constants
