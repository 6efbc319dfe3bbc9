"""Products through any unit, by the general kernel.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.by_unit.general import run_pass, split_operand
from fpsim.products.by_unit.terms import pairs
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job, to_read
from fpsim.records.formats import BINARY32, Format
from fpsim.records.types import Carrier, ElementFlags
from fpsim.state.draws import Places
from fpsim.state.threads import run_blocks

__all__ = ["run_general"]

#: Rows of a block: bounds the workspace of the split operands.
_ROWS = 256

#: Products below which a second thread costs more than it gives.
_SMALLEST = 1 << 12


def run_general(job: Job) -> bool:
    """One product of any operands through any unit."""
    settings: UnitSettings = job.settings
    a, values, flags = job.a, job.values, job.element_flags
    assert flags is not None
    assert isinstance(a, np.ndarray)
    columns = _split(settings, job.b.T, settings.b)
    n = values.shape[1]

    def work(begin: int, end: int) -> int:
        for r in range(begin, end, _ROWS):
            part = slice(r, min(r + _ROWS, end))
            rows = _split(settings, a[part], settings.a)
            _run_rows(settings, rows, columns, values[part], flags[part], job.places.part(r))
        return 0

    run_blocks(work, 0, len(values), max(1, _SMALLEST // max(1, n * a.shape[1])))
    return True


Split = tuple[NDArray[np.int32], NDArray[np.int32]]


def _split(settings: UnitSettings, operand: Carrier, fmt: Format) -> Split:
    """Significands and exponents, padded to complete passes, in the order the unit takes them."""
    k = settings.depth(operand.shape[1])
    shape = (operand.shape[0], k)
    significands, exponents = np.empty(shape, np.int32), np.empty(shape, np.int32)
    flush = settings.policy == "flush_both" and fmt == BINARY32
    split_operand(
        to_read(operand.view(np.uint32)),
        significands,
        exponents,
        fmt.precision,
        fmt.emin,
        int(flush),
    )
    if settings.unit.order == "pairs":
        order = pairs(settings.piece(k), k)
        return significands.take(order, axis=1), exponents.take(order, axis=1)
    return significands, exponents


def _run_rows(
    settings: UnitSettings, rows: Split, columns: Split, values: Carrier, flags: ElementFlags,
    places: Places,
) -> None:
    channels, k = settings.unit.channels, rows[0].shape[1]
    for number in range(k // channels):
        run_pass(
            *rows, *columns, number * channels, values.view(np.uint32), flags, settings.kernel_call
        )
        if settings.store:
            settings.store(values, flags, number, places)
