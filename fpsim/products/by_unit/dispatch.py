"""Products through matrix units: partials, stores and the engines, fastest first.

A product runs pass by pass: the unit adds the terms of a pass to the partials, which are then
stored in their format. The result goes through one more rounding into the context's format where
that is narrower.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import math

import numpy as np

from fpsim.products.by_unit.exact import run_exact
from fpsim.products.by_unit.fused import run_fused
from fpsim.products.by_unit.general import run_general
from fpsim.products.by_unit.images import fits_any_lanes
from fpsim.products.by_unit.unit_settings import Store, UnitSettings
from fpsim.products.by_unit.window import run_window
from fpsim.products.jobs.job import Job, around_specials, matrices, run
from fpsim.products.jobs.rows import Rows
from fpsim.products.jobs.stack import Stack
from fpsim.products.jobs.windows import Windows
from fpsim.records.types import Carrier, ElementFlags, Shape
from fpsim.state.draws import Places
from fpsim.state.threads import run_blocks

__all__ = [
    "ENGINES", "FAST", "accumulate", "accumulate_whole", "finish", "multiply", "round_outputs",
]

#: Results whose last rounding is not worth another thread, and elements of unfolded rows written
#: out.
_FEW, _UNFOLDED = 1 << 15, 1 << 20

#: Numbers of both operands up to which products are small, and numbers of an operand that may be
#: written out for all of them.
_SMALL, _STACKED = 1 << 15, 1 << 20


def _written_out(job: Job) -> bool:
    """Rows that no fast engine takes as they are: blocks of them as matrices."""
    if not isinstance(job.a, Rows):
        return False
    step = max(1, _UNFOLDED // job.a.shape[1])
    for begin in range(0, len(job.values), step):
        rows = slice(begin, begin + step)
        assert job.element_flags is not None
        block = Job(
            job.settings, job.a.part(rows).matrix(), job.b, job.values[rows],
            job.element_flags[rows], job.places.part(begin), fresh=job.fresh,
        )
        run(ENGINES, block)
    return True


def _in_pieces(job: Job) -> bool:
    """Windows that no fast engine takes as a whole: a piece of the images at a time."""
    if not isinstance(job.a, Windows):
        return False
    for piece in job.pieces(job.values):
        run(ENGINES, piece)
    return True


def _around_specials(job: Job) -> bool:
    return around_specials(job, FAST, run_general)


#: Engines with conditions of their own, and all in the order in which they are tried.
FAST = [run_window, run_exact, run_fused]
ENGINES = [*FAST, _in_pieces, _written_out, _around_specials, run_general]


def multiply(
    settings: UnitSettings, a: Carrier | Rows | Windows, b: Carrier, start: Carrier | None,
    shape: Shape, places: Places,
) -> tuple[Carrier, ElementFlags]:
    """Values of the result, and the flags of each.

    Shapes    a (..., M, K), or Rows or Windows of that matrix, then with b (K, N) and all rows of
              the result in one; b (..., K, N), shape (..., M, N). The result may be some columns of
              a wider one, whose numbers `places` has.
    """
    values = np.zeros(shape, np.float32) if start is None else start.copy()
    flags = np.zeros(shape, np.uint8)
    if isinstance(a, np.ndarray) and len(shape) == 2:
        run(ENGINES, Job(settings, a, b, values, flags, places, fresh=start is None))
    else:
        accumulate(settings, a, b, values, flags, places, fresh=start is None)
    finish(settings, a.shape[-1], values, flags, places)
    return values, flags


def accumulate(
    settings: UnitSettings, a: Carrier | Rows | Windows, b: Carrier, values: Carrier,
    flags: ElementFlags, places: Places, *, fresh: bool = False,
) -> None:
    """The passes with their stores: values hold the partials and receive the sums.

    fresh   values are all zeros, so their magnitudes are not scanned.

    Shapes    as for `multiply`; values and flags, as the result, in C order; flags are zero before.
    """
    if not isinstance(a, np.ndarray):
        matrix = (math.prod(values.shape[:-1]), values.shape[-1])
        flat = values.reshape(matrix), flags.reshape(matrix)
        run(ENGINES, Job(settings, a, b, *flat, places, fresh=fresh))
    elif values.ndim == 2:
        run(ENGINES, Job(settings, a, b, values, flags, places, fresh=fresh))
    elif not _stacked(settings, a, b, values, flags, places, fresh=fresh):
        for job in matrices(settings, a, b, values, flags, places, fresh=fresh):
            run(ENGINES, job)


def accumulate_whole(
    settings: UnitSettings, a: Windows, b: Carrier, values: Carrier, flags: ElementFlags,
    places: Places, *, fresh: bool,
) -> bool:
    """As `accumulate`, of windows that no other engine than a fast one takes; False if none can."""
    if not (values.size and len(b)):
        return True  # no outputs, or sums of no terms
    if not fits_any_lanes(a):
        return False
    matrix = (math.prod(values.shape[:-1]), b.shape[1])
    flat = values.reshape(matrix), flags.reshape(matrix)
    job = Job(settings, a, np.ascontiguousarray(b), *flat, places, fresh=fresh)
    return any(engine(job) for engine in FAST)


def _stacked(
    settings: UnitSettings, a: Carrier, b: Carrier, values: Carrier, flags: ElementFlags,
    places: Places, *, fresh: bool,
) -> bool:
    """All products as one stack; False where they are large or no fast engine runs all of them."""
    *batch, m, n = values.shape
    k, products = a.shape[-1], math.prod(batch)
    if b.ndim == 2 or products < 2 or m * k + k * n > _SMALL:
        return False
    if max(m, n) * k * products > _STACKED and max(a.size, b.size) < max(m, n) * k * products:
        return False  # what repeats would be written out
    left, right = (
        x if x.shape[:-2] == values.shape[:-2] else np.broadcast_to(x, (*batch, *x.shape[-2:]))
        for x in (a, b)
    )
    left, right = left.reshape(products, m, k), right.reshape(products, k, n)
    flat = values.reshape(products * m, n), flags.reshape(products * m, n)
    job = Job(settings, Stack(left), right, *flat, places, fresh=fresh)
    return k > 0 and m * n > 0 and any(engine(job) for engine in FAST)


def finish(
    settings: UnitSettings, k: int, values: Carrier, flags: ElementFlags, places: Places
) -> None:
    """The roundings after all calls: of a K stored in one pass, and into the result's format."""
    if settings.at_the_end and k:
        round_outputs(settings.at_the_end, 0, values, flags, places)
    if settings.final:
        last = settings.rounding_places(k)[-1] if places.active else 0
        round_outputs(settings.final, last, values, flags, places)


def round_outputs(
    rounding: Store, place: int, values: Carrier, flags: ElementFlags, places: Places
) -> None:
    """Every output rounded at one place."""
    if not values.size:
        return
    columns = values.shape[-1] if values.ndim else 1
    flat, flat_flags = values, flags
    if values.ndim != 2:
        flat, flat_flags = values.reshape(-1, columns), flags.reshape(-1, columns)
    if values.size < 2 * _FEW:
        rounding(flat, flat_flags, place, places)
        return

    def work(begin: int, end: int) -> int:
        return rounding(flat[begin:end], flat_flags[begin:end], place, places.part(begin))

    run_blocks(work, 0, len(flat), max(1, _FEW // columns), 16)
