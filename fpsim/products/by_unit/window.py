"""Products through windowed units by the loop of tiles, where its conditions hold.

In 32-bit lanes twice as many outputs stand side by side; they serve exponents that are not far
apart, and windows of few digits or, where sums are rounded to nearest, of many.

Source    docs/semantics.md §5; the bounds are derived at `_fits` and `_narrow`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fpsim.kernels.by_unit.panels import Shift
from fpsim.kernels.by_unit.reach import extents
from fpsim.kernels.by_unit.tiles import WINDOW_31, WINDOW_32, WINDOW_64, WINDOW_PAIR
from fpsim.kernels.by_unit.window import CARRIED, CUT, NEAREST, WHOLE
from fpsim.products.by_unit.task import OperandTable, TileTask, tile_variant
from fpsim.products.by_unit.tiles import RepeatedTiles, run_tiles
from fpsim.products.by_unit.unit_settings import Store, UnitSettings, nearest
from fpsim.products.jobs.job import Job, Reach
from fpsim.records.formats import BINARY32
from fpsim.records.rounding import RNE, RTZ
from fpsim.records.types import Carrier, ElementFlags
from fpsim.records.units import MatrixUnit

__all__ = ["RepeatedWindow", "run_window"]

#: Exponent fields of lanes: bits below them, bias, and what a zero of the left and of the right
#: operand counts with: below every other, alone or together with a number.
_FIELDS = {32: (23, 127, -60, -190), 64: (52, 1023, 623, -400)}

_NO_CODES = np.zeros(0, np.uint32)

#: Largest exponent of a number in lanes of 32 bits.
_FAR = 60

#: Terms of a call up to which it is written out in the loop.
_TERMS = 32


class WindowSums(NamedTuple):
    """How the sums of a unit's calls are rounded, and in which lanes."""

    how: int
    precision: int  # CUT: digits that stay
    emin: int  # WHOLE: of subnormal accumulators
    store: Store | None
    lanes: int  # where exponents are near each other; see `_narrow`


@lru_cache(maxsize=256)
def _sums(settings: UnitSettings) -> WindowSums | None:
    """None for records that the loop does not know."""
    unit, accumulator = settings.unit, settings.unit.accumulator
    if (
        unit.window is None
        or unit.window == 1  # an infinite partial would be scaled by zero
        or unit.cut != "truncate"
        or unit.join is not None
        or unit.order != "ascending"
        or unit.product_rounded
        or unit.terms > _TERMS
        or unit.window + (unit.terms + 1).bit_length() > 50
    ):
        return None
    range_of_sums = accumulator.emin, accumulator.emax
    if range_of_sums == (BINARY32.emin, BINARY32.emax) and unit.rounding == RTZ:
        return _in_lanes(settings, CUT, accumulator.precision, 0, settings.store)
    if accumulator == BINARY32:
        return _in_lanes(settings, NEAREST, 24, 0, settings.store)
    if accumulator == unit.partials and unit.chain == 1 and unit.rounding == RNE:
        return _in_lanes(settings, WHOLE, 24, accumulator.emin, nearest(accumulator))
    return None


def _in_lanes(
    settings: UnitSettings, how: int, precision: int, emin: int, store: Store | None
) -> WindowSums:
    """Sums with their lanes: those of 32 bits below 2**31 where products are exact in them."""
    unit, lanes = settings.unit, int(WINDOW_64)
    assert unit.window is not None
    exact = settings.a.precision + settings.b.precision <= 24
    if exact and (store is None or store.narrow.constants.dtype == np.uint32):
        # Products are below 4 and the accumulator below 2, in units of 2**window.
        if 4 * unit.terms + 2 <= 2 ** (31 - unit.window):
            lanes = WINDOW_31
        elif 4 * unit.terms <= 2 ** (31 - unit.window):
            lanes = WINDOW_32
        elif how == NEAREST and _in_pairs(unit):
            lanes = WINDOW_PAIR
    return WindowSums(how, precision, emin, store, lanes)


def run_window(job: Job, lanes: int | None = None) -> bool:
    """One matrix product; False if this engine must not run it.

    lanes   64: in lanes of 64 bits, also where narrower ones serve.
    """
    settings: UnitSettings = job.settings
    if _sums(settings) is None:
        return False
    kind = _kind(settings, job.reach(), job.a.shape[1], lanes)
    if kind is None:
        return False
    run_tiles(job, _task(settings, kind, job.places.low))
    return True


def _kind(settings: UnitSettings, reach: Reach, terms: int, lanes: int | None) -> int | None:
    """The lanes that numbers of this reach take; None where this engine must not run them."""
    sums = _sums(settings)
    assert sums is not None
    if not reach.finite:
        return None
    low, high, top_a, top_b = reach.exponents(settings.a.emin, settings.b.emin, settings.scale)
    if not _fits(settings, reach, terms, low, high):
        return None
    top, kind = max(top_a + settings.scale, top_b), sums.lanes
    if lanes == 64 or kind == WINDOW_64 or not _narrow(settings, reach, low, top):
        kind = WINDOW_64
    return kind


class RepeatedWindow:
    """Small products on the same memory time after time; see `RepeatedTiles`."""

    def __init__(self, settings: UnitSettings, tiles: RepeatedTiles, terms: int) -> None:
        self._settings, self._tiles, self._terms = settings, tiles, terms

    @classmethod
    def of(
        cls, settings: UnitSettings, a: Carrier, b: Carrier, values: Carrier, flags: ElementFlags
    ) -> RepeatedWindow | None:
        """None where another engine than this one computes, or more than one call."""
        if _sums(settings) is None or not RepeatedTiles.takes(a, b):
            return None
        flat = (math.prod(values.shape[:-1]), values.shape[-1])
        tiles = RepeatedTiles(settings, a, b, values.reshape(flat), flags.reshape(flat))
        return cls(settings, tiles, a.shape[-1])

    def run(self, random: Any) -> bool:
        """Compute into values that are zeros; False, and nothing has happened, where this engine
        must not run on numbers of now.

        random    of the places of the result, as kernels take them.
        """
        tiles = self._tiles
        tiles.read()
        reach = Reach(*extents(tiles.numbers.view(np.uint32), tiles.codes, _NO_CODES))
        kind = _kind(self._settings, reach, self._terms, None)
        if kind is None:
            return False
        tiles.run(_task(self._settings, kind, low=False), random)
        return True


@lru_cache(maxsize=256)
def _task(settings: UnitSettings, kind: int, low: bool) -> TileTask:
    """What the loop of tiles is given; R stands in the `low` bits of random words."""
    sums = _sums(settings)
    assert sums is not None
    width = 64 if kind == WINDOW_64 else 32
    how = CARRIED if kind == WINDOW_PAIR and _is_carried(settings) else sums.how
    variant, constants = tile_variant(
        kind, settings, sums.store, low, width, sums=how, calls=_calls(settings, sums)
    )
    is_plain = width == 32 and settings.scale == 0
    return TileTask(
        variant, width, constants, _numbers(settings, sums, kind),
        OperandTable(0 if is_plain else width, width, _shift(settings, width, left=True)),
        OperandTable(32, width, _shift(settings, width, left=False)),
    )


def _calls(settings: UnitSettings, sums: WindowSums) -> int | None:
    """Calls of a pass: one where nothing is stored after it, None for the unit's.

    A call of zeros leaves a sum as it is if the window has all of its digits, so the zeros that
    make a pass whole are left out.
    """
    assert settings.unit.window is not None
    is_same = sums.store is None and settings.unit.window + 1 >= sums.precision
    return 1 if is_same else None


def _numbers(settings: UnitSettings, sums: WindowSums, kind: int) -> Carrier:
    """The fields that undo the window, up and down, and the edge of the sums."""
    assert settings.unit.window is not None
    width = 64 if kind == WINDOW_64 else 32
    place, bias, _, _ = _FIELDS[width]
    all_ones, down = (1 << width) - 1, settings.unit.window << place
    edge = all_ones >> (place + 1 - sums.precision) << (place + 1 - sums.precision)
    if sums.how == WHOLE:
        edge = (bias + sums.emin) << place
    if kind == WINDOW_PAIR:
        edge = (2 * (bias + _middle(settings)) + 1) << (place - 1)
    up = (2 * bias << place) + down
    return np.array([n & all_ones for n in (up, down, edge)], f"u{width // 8}")


def _shift(settings: UnitSettings, width: int, *, left: bool) -> Shift:
    """Exponents as the lanes count them; those of the left operand carry bias and scale."""
    _, bias, zero_left, zero_right = _FIELDS[width]
    if left:
        factor = math.ldexp(1.0, settings.scale)
        return Shift(bias + settings.scale, zero_left, settings.a.emin, factor, False)
    return Shift(0, zero_right, settings.b.emin, 1.0, False)


def _fits(settings: UnitSettings, reach: Reach, terms: int, low: int, high: int) -> bool:
    """Whether no sum can overflow or be subnormal; low and high are exponents of products.

    A product is below 2**(high + 2), and all sums are multiples of 2**(low - window) or of what the
    start is a multiple of.
    """
    window = settings.unit.window
    assert window is not None
    if high + 2 + terms.bit_length() > 120 or low - window < -126:
        return False
    start = reach.most_start
    return not start or (start < 2.0**120 and reach.least_start >= math.ldexp(1.0, window - 126))


def _middle(settings: UnitSettings) -> int:
    """k of the 1.5 * 2**k that the float of a pair begins as, in units of 2**-window.

    Its last place, 2**(k - 23), is twice the bound of products that have digits below the window.
    """
    digits = settings.a.precision + settings.b.precision
    return max(_place_of_sums(settings.unit), digits + 23)


def _place_of_sums(unit: MatrixUnit) -> int:
    """The least k: sums, below (4 * terms + 2) * 2**window, move the float by less than half."""
    assert unit.window is not None
    return unit.window + (4 * unit.terms + 2).bit_length() + 1


def _in_pairs(unit: MatrixUnit) -> bool:
    """Whether accumulators, of 24 digits, leave the float multiples of its last place."""
    return unit.terms == 1 or _place_of_sums(unit) <= 24 + 23


def _is_carried(settings: UnitSettings) -> bool:
    """Whether the integer of a pair may have more than 24 digits.

    The accumulator leaves 2**23 there at most, and each term half a last place of the float.
    """
    most: int = settings.unit.terms * 2 ** (_middle(settings) - 24)
    return most > 2**23


def _narrow(settings: UnitSettings, reach: Reach, low: int, top: int) -> bool:
    """Whether the exponents fit into the field of lanes of 32 bits.

    low   exponent of the smallest product; top that of the largest operand.

    A product has a significand below 4, cut to `window` digits. The
    scale 2**(window - emax) must be a normal number; emax is at least low - window.
    """
    window = settings.unit.window
    assert window is not None
    least = low - window
    if reach.most_start:
        least = min(least, math.frexp(reach.least_start)[1] - 1)
    return top <= _FAR and window > 1 and least + 126 > window
