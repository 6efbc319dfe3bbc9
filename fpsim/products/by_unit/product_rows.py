"""Products of rows of matrices, each with random bits and flags of its own.

What a unit computes without random bits is one stack; what rounds stochastically has the keys of
its row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply_rows import RowKeys, flags_of_rows
from fpsim.products.by_unit.dispatch import accumulate, finish, multiply
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.types import Carrier, ElementFlags, Shape
from fpsim.state.draws import NO_PLACES, Draw, Places

__all__ = ["multiply_rows"]


def multiply_rows(
    settings: UnitSettings, a: Carrier, b: Carrier, shape: Shape, rows: int,
    keys: RowKeys | None = None,
) -> tuple[Carrier, NDArray[np.int64]]:
    """Values of so many products, and the flags of each.

    keys    of stochastic roundings.

    Shapes    a (rows or 1, …, M, K), b (rows or 1, …, K, N); the result (rows, *shape).
    """
    k = a.shape[-1]
    flags = np.zeros((rows, *shape), np.uint8)
    if keys is not None and (settings.store or settings.at_the_end) and settings.stochastic_stores:
        values = np.empty((rows, *shape), np.float32)
        for r in range(rows):
            places = _places(settings, keys, r, k, shape)
            values[r], flags[r] = multiply(settings, _row(a, r), _row(b, r), None, shape, places)
        return values, flags_of_rows(flags)
    values = np.zeros((rows, *shape), np.float32)
    _accumulate(settings, a, b, values, flags)
    if keys is None:
        finish(settings, k, values, flags, NO_PLACES)
    else:
        for r in range(rows):
            finish(settings, k, values[r], flags[r], _places(settings, keys, r, k, shape))
    return values, flags_of_rows(flags)


def _row(x: Carrier, r: int) -> Carrier:
    row: Carrier = x[r if len(x) > 1 else 0]
    return row


def _places(settings: UnitSettings, keys: RowKeys, r: int, k: int, shape: Shape) -> Places:
    seeds, number, _ = keys
    wide = settings.settings.random_most > 16
    draw = Draw(seeds[r], np.uint64(number), None)
    return Places(draw, settings.rounding_places(k), shape, wide=wide)


def _accumulate(
    settings: UnitSettings, a: Carrier, b: Carrier, values: Carrier, flags: ElementFlags
) -> None:
    """All products without their roundings: as one matrix where they have the right factor."""
    rows, n = len(values), values.shape[-1]
    if len(b) == 1 and b.ndim == a.ndim == 3 and len(a) == rows:
        flat = values.reshape(-1, n), flags.reshape(-1, n)
        accumulate(settings, a.reshape(-1, a.shape[-1]), b[0], *flat, NO_PLACES, fresh=True)
        return
    axes = max(a.ndim, b.ndim)
    left, right = (
        np.broadcast_to(
            x.reshape(len(x), *(1,) * (axes - x.ndim), *x.shape[1:]),
            (rows, *(1,) * (axes - x.ndim), *x.shape[1:]),
        )
        for x in (a, b)
    )
    accumulate(settings, left, right, values, flags, NO_PLACES, fresh=True)
