"""How far the numbers of a product reach: what the fast engines' conditions are about."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fpsim.kernels.by_unit.reach import extents
from fpsim.products.job import Job
from fpsim.products.rows import Rows

__all__ = ["Reach", "reach"]

_NOTHING = np.zeros(0, np.uint32)


class Reach(NamedTuple):
    """Magnitudes of the operands and of the partials to start from.

    least_a …   the smallest that is not zero; infinity where all are zero.
    most_a …    the largest; infinity or NaN where one of them is.
    low, high   exponents of the smallest and the largest product, scale included.
    top_a, top_b   of the largest numbers; all exponents are at least emin, and 0 and -1 where all
                numbers are zero.
    """

    least_a: float
    most_a: float
    least_b: float
    most_b: float
    least_start: float
    most_start: float
    low: int
    high: int
    top_a: int
    top_b: int

    @property
    def finite(self) -> bool:
        """Whether every operand and partial is a number."""
        return self.most_a < math.inf and self.most_b < math.inf and self.most_start < math.inf


def reach(job: Job) -> Reach:
    """The reach of a job, computed at the first call."""
    if job.cache is None:
        job.cache = _reach(job)
    known: Reach = job.cache
    return known


def _reach(job: Job) -> Reach:
    """One pass over the operands.

    >>> from fpsim import BINARY16
    >>> from fpsim.products.by_unit.unit_settings import UnitSettings
    >>> from fpsim.records.settings import Settings
    >>> from fpsim.records.units import find_unit
    >>> unit = UnitSettings(find_unit("V100_F16_F32"), BINARY16, BINARY16, Settings(BINARY16))
    >>> a, b = np.float32([[0.0, -3.0]]), np.float32([[0.5], [1.0]])
    >>> tuple(reach(Job(unit, a, b, np.zeros((1, 1), np.float32), None)))
    (3.0, 3.0, 0.5, 1.0, inf, 0.0, 0, 1, 1, 0)
    """
    a = job.a.values if isinstance(job.a, Rows) else job.a
    start = _NOTHING if job.fresh else job.values.ravel("K").view(np.uint32)
    codes = a.ravel("K").view(np.uint32), job.b.ravel("K").view(np.uint32)
    ends: tuple[float, float, float, float, float, float] = extents(*codes, start)
    settings = job.settings
    low_a, top_a = _exponents(ends[0], ends[1], settings.a.emin)
    low_b, top_b = _exponents(ends[2], ends[3], settings.b.emin)
    scale = settings.scale
    return Reach(*ends, low_a + low_b + scale, top_a + top_b + scale, top_a, top_b)


def _exponents(least: float, most: float, emin: int) -> tuple[int, int]:
    """Of the smallest and the largest number, none below emin; 0 and -1 where all are zero."""
    if not most:
        return 0, -1
    return max(math.frexp(least)[1] - 1, emin), max(math.frexp(most)[1] - 1, emin)
