"""Products through exact units in binary64 lanes, where two limbs hold every sum.

A call of one term is a fused multiply-add of the processor, in lanes of 32 bits.

Source    docs/semantics.md §5; the bounds are derived at `_unit`.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fpsim.kernels.by_unit.exact import ANY, FINITE
from fpsim.kernels.by_unit.panels import PLAIN
from fpsim.kernels.by_unit.tiles import EXACT, FLAG, FUSED, UNGUARDED
from fpsim.kernels.target import HAS_FMA, HAS_INEXACT_FLAG
from fpsim.products.by_unit.task import OperandTable, TileTask, tile_variant
from fpsim.products.by_unit.tiles import run_tiles
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job
from fpsim.records.formats import BINARY32
from fpsim.records.rounding import RNE
from fpsim.records.units import MatrixUnit

__all__ = ["HAS_FMA", "run_exact"]

#: Terms of a call for which the lower of two limbs has room (see `_unit`).
_TERMS = 16


@lru_cache(maxsize=256)
def _knows(settings: UnitSettings) -> bool:
    unit = settings.unit
    return (
        unit.window is None
        and unit.join is None
        and unit.order == "ascending"
        and unit.accumulator == BINARY32
        and unit.rounding == RNE
        and unit.terms <= _TERMS
        and settings.a.precision + settings.b.precision <= _digits(unit)
    )


def _digits(unit: MatrixUnit) -> int:
    """Digits of a product for which two limbs have room; of one that rounding leaves as it is."""
    return BINARY32.precision if unit.product_rounded else 26


def run_exact(job: Job) -> bool:
    """One matrix product; False if this engine must not run it."""
    settings: UnitSettings = job.settings
    if not _knows(settings):
        return False
    unit = _unit(settings, job)
    if unit is None:
        return False
    run_tiles(job, _task(settings, unit, job.places.low))
    return True


@lru_cache(maxsize=512)  # a unit for each reach of the operands
def _task(settings: UnitSettings, unit: float, low: bool) -> TileTask:
    """What the loop of tiles is given; R stands in the `low` bits of random words."""
    if _one_addition(settings):
        variant, constants = tile_variant(FUSED, settings, None, low, 32)
        as_it_is, panels = OperandTable(0, 0, PLAIN), OperandTable(32, 0, PLAIN)
        return TileTask(variant, 32, constants, np.zeros(3, np.uint32), as_it_is, panels)
    scaled = PLAIN._replace(factor=math.ldexp(1.0, settings.scale))
    guard = FLAG if HAS_INEXACT_FLAG else UNGUARDED
    starts = FINITE if settings.store is None else ANY
    variant, constants = tile_variant(
        EXACT, settings, settings.store, low, 64, guard=guard, sums=starts
    )
    return TileTask(
        variant, 64, constants, np.array([unit] * 3).view(np.uint64), OperandTable(64, 0, scaled),
        OperandTable(64, 0, PLAIN),
    )


def _one_addition(settings: UnitSettings) -> bool:
    """Whether a call is one product and one sum in binary32: a fused multiply-add."""
    return HAS_FMA and settings.unit.terms == 1 and settings.store is None and settings.scale == 0


def _unit(settings: UnitSettings, job: Job) -> float | None:
    """1.5 * 2**52 units of the higher limb; None where two limbs do not hold every sum.

    Products are multiples of 2**last and sums below 2**top. The higher limb holds multiples of its
    unit u below 2**50 u; the lower one at most terms + 1 halves of u, in multiples of 2**last: 48
    digits leave room for _TERMS terms. Results must be normal numbers of binary32.
    """
    reach = job.reach()
    if not reach.finite:
        return None
    low, high, *_ = reach.exponents(settings.a.emin, settings.b.emin, settings.scale)
    last = low - (settings.a.precision - 1) - (settings.b.precision - 1)
    top = high + 2 + job.a.shape[1].bit_length()
    if reach.most_start:
        top = max(top, math.frexp(reach.most_start)[1]) + 1
        last = min(last, math.frexp(reach.least_start)[1] - 24)
    if top > 120 or last < -126 or top - last > 98:
        return None
    # Exact in every rounding mode of the thread, which a power need not be.
    return math.ldexp(1.5, 52 + max(last + 48, top - 50))
