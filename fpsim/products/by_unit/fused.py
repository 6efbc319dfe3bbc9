"""Products of binary32 operands through chains of fused multiply-adds.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fpsim.kernels.by_unit.panels import PLAIN
from fpsim.kernels.by_unit.tiles import FUSED, SUMS
from fpsim.products.by_unit.task import OperandTable, TileTask, tile_variant
from fpsim.products.by_unit.tiles import run_tiles
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job
from fpsim.products.jobs.windows import Windows
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY32
from fpsim.records.rounding import RNE

__all__ = ["run_fused"]

#: Code of the smallest normal number, and of -0's magnitude.
_NORMAL = 0x00800000


def _knows(settings: UnitSettings) -> bool:
    unit = settings.unit
    return (
        unit.terms == 1
        and unit.window is None
        and unit.join is None
        and not unit.product_rounded
        and unit.inputs == (BINARY32,)
        and unit.accumulator == unit.partials == BINARY32
        and unit.rounding == RNE
        and settings.scale == 0
    )


def run_fused(job: Job) -> bool:
    """One matrix product; False if this engine must not run it."""
    settings: UnitSettings = job.settings
    if not _knows(settings) or not job.reach().finite:
        return False
    if isinstance(job.a, Windows) and job.a.target:
        return False  # its values are those of other products too
    reach, flush = job.reach(), settings.policy == "flush_both"
    start = reach.most_start > 0
    # Sums are multiples of the last digit of the smallest product: normal, or exactly zero.
    checked = start or _last(reach.least_a, flush) * _last(reach.least_b, flush) < 2.0**-126
    is_small = flush and reach.least_a < 2.0**-126
    task = _task(settings, checked, is_small, job.places.low)
    values = job.values.copy() if checked else job.values
    if flush and start:
        values[np.abs(values) < 2.0**-126] = 0.0
    if run_tiles(job, task, values):
        return False
    if checked:
        job.values[...] = values
    most = reach.most_a * reach.most_b
    if most * job.a.shape[1] * 2.0 >= 2.0**127 or start:
        assert job.element_flags is not None
        job.element_flags[np.isinf(values)] |= np.uint8(Flags.OVERFLOW)
    return True


@lru_cache(maxsize=256)
def _task(settings: UnitSettings, checked: bool, is_small: bool, low: bool) -> TileTask:
    """What the loop of tiles is given; R stands in the `low` bits of random words.

    checked    sums are looked at.
    is_small   the left operand has subnormal numbers, which are flushed.
    """
    variant, constants = tile_variant(FUSED, settings, None, low, 32, guard=SUMS if checked else 0)
    limit = 0 if settings.policy == "keep" else _NORMAL
    shift = PLAIN._replace(flush=settings.policy == "flush_both")
    return TileTask(
        variant, 32, constants, np.full(3, limit, np.uint32),
        OperandTable(32 if is_small else 0, 0, shift), OperandTable(32, 0, shift),
    )


def _last(least: float, flush: bool) -> float:
    """The last digit of the smallest number."""
    if flush:
        least = max(least, 2.0**-126)
    return math.ldexp(1.0, math.frexp(least)[1] - 24) if least < np.inf else 1.0
