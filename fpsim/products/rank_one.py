"""Updates of rank one on carriers: the engine of factorisations.

Source    docs/semantics.md §2 (places: two elementwise operations).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.constants import KernelPlan, exact_width, plan
from fpsim.kernels.by_operation.outer import OuterVariant, outer_kernel
from fpsim.kernels.elementwise.loop import WORDS_HALF, WORDS_NONE, WORDS_WHOLE
from fpsim.kernels.elementwise.step import RESIDUAL_QUANTA
from fpsim.kernels.random.words import NO_WORDS
from fpsim.records.settings import ZERO_OR_NORMAL, Settings
from fpsim.records.types import Carrier
from fpsim.state.draws import advance
from fpsim.state.state import State
from fpsim.state.threads import run_blocks

__all__ = ["OuterBlock", "is_compiled", "subtract_outer"]

#: Elements of a target below which a second thread costs more than it gives.
_SMALLEST = 1 << 15


class _OuterCall(NamedTuple):
    """The kernel for these settings, with the constants of its products and differences."""

    loop: Any
    product_constants: NDArray[np.unsignedinteger]
    constants: NDArray[np.unsignedinteger]


def is_compiled(state: State) -> bool:
    """Whether the kernel does what single operations would: not where each of them is looked at."""
    settings = state.settings
    shared = state.clock.first or state.source.seed is None
    is_drawn_elsewhere = settings.rounding.stochastic and shared
    is_single = settings.native or settings.subnormals == ZERO_OR_NORMAL
    return not (is_single or state.watched or is_drawn_elsewhere)


@lru_cache(maxsize=256)
def _call(settings: Settings) -> _OuterCall:
    size = settings.format.carrier.itemsize
    product, difference = (
        plan(name, settings, exact_width(name, settings, size)) for name in ("multiply", "subtract")
    )
    variant = OuterVariant(
        product.mode, product.flush, product.one_zero, _words(product), _words(difference),
        RESIDUAL_QUANTA if product.in_quanta else product.residual, difference.residual,
    )
    return _OuterCall(outer_kernel(variant), product.constants, difference.constants)


def _words(rule: KernelPlan) -> int:
    """How many random digits the kernel makes for an element."""
    if not rule.stochastic:
        return WORDS_NONE
    return WORDS_WHOLE if rule.whole_words else WORDS_HALF


class OuterBlock(NamedTuple):
    """Rows and columns of a matrix that are updated: from the first ones up to the last ones."""

    first_row: int
    last_row: int
    first_column: int
    last_column: int


def subtract_outer(
    state: State, matrix: Carrier, block: OuterBlock, column: Carrier, row: Carrier
) -> None:
    """matrix[block] -= column row: two operations of the state, published, if it is compiled.

    Shapes    matrix contiguous, column as long as the block's rows, row as its columns.
    Rounding  of each product, then of each difference.
    Flags     of both.
    """
    width = matrix.shape[1]
    rows, n = block.last_row - block.first_row, block.last_column - block.first_column
    stochastic = state.settings.rounding.stochastic
    if rows and n:
        call = _call(state.settings)
        number, seed = np.uint64(state.clock.operation), state.source.seed if stochastic else 0
        where = matrix.reshape(-1), block.first_row * width + block.first_column, width
        what = np.ascontiguousarray(column), np.ascontiguousarray(row)
        constants = NO_WORDS, call.product_constants, call.constants
        random = np.uint64(seed or 0), number, number + np.uint64(1)

        def work(begin: int, end: int) -> int:
            flags: int = call.loop(*where, *what, begin, end, *constants, *random)
            return flags

        small = rows * n < 2 * _SMALLEST
        flags = work(0, rows) if small else run_blocks(work, 0, rows, max(1, _SMALLEST // n), 1)
        if flags:
            state.raise_flags(flags)
    if stochastic:
        advance(state)
        advance(state)
