"""Which kernel runs a product: the fastest whose conditions the record and the operands meet.

All give the same bits and flags; the general one runs anything.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import math

import numpy as np

from fpsim.elementwise.apply import Carrier
from fpsim.products.by_unit.exact import run_exact
from fpsim.products.by_unit.fused import run_fused
from fpsim.products.by_unit.general import run_general
from fpsim.products.by_unit.operands import Operands, Rows
from fpsim.products.by_unit.product import Marks, Product, Store
from fpsim.products.by_unit.window import run_window
from fpsim.state.draws import Places

__all__ = ["ENGINES", "accumulate", "finish", "round_outputs", "run"]

#: Fast kernels, tried in this order; each returns False for what it must not run.
ENGINES = [run_window, run_exact, run_fused]

#: Results that get their last rounding at a time, and elements of unfolded rows written out.
_CHUNK, _UNFOLDED = 1 << 16, 1 << 20


def run(
    product: Product, a: Carrier | Rows, b: Carrier, start: Carrier | None, shape: tuple[int, ...],
    places: Places,
) -> tuple[Carrier, Marks]:  # fmt: skip
    """Values of the result and the flags of each.

    Shapes    a (..., M, K) or Rows of that matrix, then with b (K, N) and all rows of the result in
              one; b (..., K, N), shape (..., M, N). The result may be some columns of a wider one,
              whose numbers `places` knows.
    """
    values = np.zeros(shape, np.float32) if start is None else start.copy()
    marks = np.zeros(shape, np.uint8)
    accumulate(product, a, b, values, marks, places, fresh=start is None)
    finish(product, a.shape[-1], values, marks, places)
    return values, marks


def accumulate(
    product: Product, a: Carrier | Rows, b: Carrier, values: Carrier, marks: Marks, places: Places,
    *, fresh: bool = False,
) -> None:  # fmt: skip
    """The passes with their stores: values hold the partials and receive the sums.

    If `fresh`, all partials are zeros, and nobody need look.

    Shapes    as for `run`; values and marks, as the result, in C order; marks are zero before.
    """
    shape = values.shape
    matrix = (math.prod(shape[:-1]), shape[-1])
    flat, flat_marks = values.reshape(matrix), marks.reshape(matrix)
    if isinstance(a, Rows):
        _run_unfolded(product, a, b, flat, flat_marks, places, fresh)
    elif b.ndim == 2:
        a = a.reshape(matrix[0], a.shape[-1])
        _run_matrix(product, a, b, flat, flat_marks, places, fresh)
    else:
        batch = shape[:-2]
        a, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
        for i, index in enumerate(np.ndindex(*batch)):
            part = places.part(i * shape[-2])
            _run_matrix(product, a[index], b[index], values[index], marks[index], part, fresh)


def finish(product: Product, k: int, values: Carrier, marks: Marks, places: Places) -> None:
    """The roundings after all calls: of a K stored whole, and into the result's format."""
    if product.whole and k:
        round_outputs(product.whole, 0, values, marks, places)
    if product.final:
        round_outputs(product.final, product.passes(k), values, marks, places)


def round_outputs(
    rounding: Store, place: int, values: Carrier, marks: Marks, places: Places
) -> None:
    """Every output rounded at one place."""
    matrix = (math.prod(values.shape[:-1]), values.shape[-1])
    flat, flat_marks = values.reshape(matrix), marks.reshape(matrix)
    step = max(1, _CHUNK // max(1, matrix[1]))
    for begin in range(0, matrix[0], step):
        rows = slice(begin, begin + step)
        words = places.part(begin).words(place, flat[rows].shape)
        rounding(flat[rows].reshape(-1), flat_marks[rows].reshape(-1), words, places.low)


def _run_unfolded(
    product: Product, a: Rows, b: Carrier, values: Carrier, marks: Marks, places: Places,
    fresh: bool,
) -> None:  # fmt: skip
    """Where no fast engine takes them as they are: some rows written out after the other."""
    if _is_empty(values, b) or _run_fast(product, a, b, values, marks, places, fresh):
        return
    step = max(1, _UNFOLDED // a.shape[1])
    for begin in range(0, len(values), step):
        rows = slice(begin, begin + step)
        some = a.part(rows).matrix()
        _run_matrix(product, some, b, values[rows], marks[rows], places.part(begin), fresh)


def _run_matrix(
    product: Product, a: Carrier, b: Carrier, values: Carrier, marks: Marks, places: Places,
    fresh: bool,
) -> None:  # fmt: skip
    """One matrix product: values hold the partials and receive the sums, marks their flags."""
    whole = (product, a, b, values, marks, places)
    if not (_is_empty(values, b) or _run_fast(*whole, fresh) or _run_around_specials(*whole)):
        run_general(*whole)


def _is_empty(values: Carrier, b: Carrier) -> bool:
    return values.size == 0 or len(b) == 0


def _run_fast(
    product: Product, a: Carrier | Rows, b: Carrier, values: Carrier, marks: Marks, places: Places,
    fresh: bool = False,
) -> bool:  # fmt: skip
    operands = Operands.of(a, b, None if fresh else values)
    return any(engine(product, operands, values, marks, places) for engine in ENGINES)


def _run_around_specials(
    product: Product, a: Carrier, b: Carrier, values: Carrier, marks: Marks, places: Places
) -> bool:
    """Rows and columns with infinities or NaN by the general kernel, the rest by a fast one."""
    rows = ~(np.isfinite(a).all(axis=1) & np.isfinite(values).all(axis=1))
    columns = ~np.isfinite(b).all(axis=0)
    if rows.all() or columns.all() or not (rows.any() or columns.any()):
        return False
    if places.active and product.store:
        return False  # scattered outputs would need their own random words
    start = values.copy()
    values[rows] = 0
    clean_a, clean_b = a.copy(), b.copy()
    clean_a[rows], clean_b[:, columns] = 0, 0
    if not _run_fast(product, clean_a, clean_b, values, marks, places):
        values[...] = start
        return False
    of_rows, of_columns = np.ix_(rows, columns | True), np.ix_(rows | True, columns)
    for some, x, y in ((of_rows, a[rows], b), (of_columns, a, b[:, columns])):
        part, part_marks = start[some], np.zeros(start[some].shape, np.uint8)
        if part.size:
            run_general(product, x, y, part, part_marks, places)
        values[some], marks[some] = part, part_marks
    return True
