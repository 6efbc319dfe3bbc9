"""Products through any unit, by the general kernel.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import Carrier
from fpsim.kernels.by_unit.general import run_pass, split_operand
from fpsim.products.by_unit.product import Product
from fpsim.products.by_unit.tiles import pairs
from fpsim.records.formats import BINARY32, Format
from fpsim.state.draws import Places, Words
from fpsim.state.threads import run_blocks

__all__ = ["run_general"]

Marks = NDArray[np.uint8]

#: Rows of a block: bounds the workspace of the split operands.
_ROWS = 256

#: Products below which a second thread costs more than it gives.
_SMALLEST = 1 << 12


def run_general(
    product: Product, a: Carrier, b: Carrier, values: Carrier, marks: Marks, places: Places
) -> None:  # fmt: skip
    """One matrix product: values hold the partials and receive the result, marks its flags."""
    columns = _split(product, b.T, product.b)
    n = values.shape[1]

    def work(begin: int, end: int) -> int:
        for r in range(begin, end, _ROWS):
            part = slice(r, min(r + _ROWS, end))
            rows = _split(product, a[part], product.a)
            _run_rows(product, rows, columns, values[part], marks[part], places.part(r))
        return 0

    if values.size:
        run_blocks(work, 0, values.shape[0], max(1, _SMALLEST // max(1, n * a.shape[1])))


Split = tuple[NDArray[np.int32], NDArray[np.int32]]


def _split(product: Product, operand: Carrier, fmt: Format) -> Split:
    """Significands and exponents, padded to whole passes, in the order the unit takes them."""
    k = product.depth(operand.shape[1])
    shape = (operand.shape[0], k)
    significands, exponents = np.empty(shape, np.int32), np.empty(shape, np.int32)
    flush = product.policy == "flush_both" and fmt == BINARY32
    split_operand(
        operand.view(np.uint32), significands, exponents, fmt.precision, fmt.emin, int(flush)
    )
    if product.unit.order == "pairs":
        order = pairs(product.unit.channels, k)
        return significands.take(order, axis=1), exponents.take(order, axis=1)
    return significands, exponents


def _run_rows(
    product: Product, rows: Split, columns: Split, values: Carrier, marks: Marks, places: Places
) -> None:  # fmt: skip
    flat, flat_marks = values.reshape(-1), marks.reshape(-1)
    kept: dict[int, Words] = {}
    channels, k = product.unit.channels, rows[0].shape[1]
    for number in range(k // channels):
        run_pass(*rows, *columns, number * channels, values.view(np.uint32), marks, product.call)
        if product.store:
            words = places.words(number, values.shape, kept)
            product.store(flat, flat_marks, words, places.low)
