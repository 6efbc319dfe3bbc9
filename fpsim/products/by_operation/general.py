"""Products rounded after every operation by the kernel that knows every format, mode and policy.

Source    docs/semantics.md §2 (places) and §4 (order).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import Carrier, fold
from fpsim.elementwise.constants import Plan, exact_width, plan
from fpsim.kernels.by_operation.general import CHAINS, RoundedVariant, rounded_kernel
from fpsim.kernels.by_operation.sums import (
    COLUMN_BLOCK,
    WORDS_GIVEN,
    WORDS_HALF,
    WORDS_NONE,
    WORDS_WHOLE,
)
from fpsim.kernels.elementwise.loop import FLAGS_EACH, FLAGS_STICKY
from fpsim.state.bits import Philox
from fpsim.state.publish import Marks
from fpsim.state.threads import run_blocks

if TYPE_CHECKING:
    from fpsim.context import Context

__all__ = ["GeneralProduct"]

Words = NDArray[np.uint32]

#: Multiply-adds below which a second thread costs more than it gives.
_SMALLEST = 1 << 16

_NO_WORDS = np.zeros((1, COLUMN_BLOCK), np.uint32)


class GeneralProduct:
    """A product in a context, ready to run as a whole or in parts.

    `marks` says whether the flags of each element are wanted.
    """

    def __init__(self, context: Context, chain: str, a: Carrier, b: Carrier, marks: bool) -> None:
        settings, source = context.settings, context.source
        (self._m, k), self._n = a.shape, b.shape[1]
        self._product, self._total = (
            plan(name, settings, exact_width(name, settings, a.itemsize))
            for name in ("multiply", "fma" if chain == "fused" else "add")
        )
        words, self._given = WORDS_NONE, _NO_WORDS
        if settings.rounding.stochastic:
            words = WORDS_WHOLE if self._product.whole_words else WORDS_HALF
            if not isinstance(source, Philox):
                words = WORDS_GIVEN
                self._given = _given(context, CHAINS[chain] * k, self._m, self._n)
        # Infinities times the zeros that fill the last panel are none of the product's.
        self._each = marks or (self._n % COLUMN_BLOCK > 0 and not bool(np.isfinite(a).all()))
        level = FLAGS_EACH if self._each else FLAGS_STICKY
        self._loop = rounded_kernel(_variant(chain, self._product, level, words))
        self._seed = np.uint64(source.seed if isinstance(source, Philox) else 0)
        self._number = np.uint64(context.operation)
        self._a, self._b = np.ascontiguousarray(a), _panels(b)

    def run(self) -> tuple[Carrier, int, Marks]:
        """Values, flags, and the flags of each element."""
        shape = (self._m, len(self._b) * COLUMN_BLOCK)
        out, marks = np.zeros(shape, self._a.dtype), np.zeros(shape, np.uint8)

        def work(begin: int, end: int) -> int:
            part = slice(begin, end)
            first = begin * self._n
            return self._call(self._a[part], self._b, out[part], marks[part], first, self._n)

        flags = run_blocks(work, 0, self._m, max(1, _SMALLEST // self._b[..., 0].size), 4)
        return out[:, : self._n].copy(), flags, marks[:, : self._n]

    def rows(self, chosen: Any, values: Carrier) -> int:
        """Some rows into values; their flags."""
        flags = 0
        out = np.zeros((1, len(self._b) * COLUMN_BLOCK), self._a.dtype)
        marks = np.zeros(out.shape, np.uint8)
        for i in chosen:
            flags |= self._call(self._a[i : i + 1], self._b, out, marks, int(i) * self._n, self._n)
            values[i] = out[0, : self._n]
        return flags

    def columns(self, chosen: Any, values: Carrier) -> int:
        """Some columns, and those that share a vector with them, into values; their flags."""
        flags = 0
        for panel in sorted({int(j) // COLUMN_BLOCK for j in chosen}):
            out = np.zeros((self._m, COLUMN_BLOCK), self._a.dtype)
            marks, first = np.zeros(out.shape, np.uint8), panel * COLUMN_BLOCK
            n = self._n - first
            flags |= self._call(self._a, self._b[panel : panel + 1], out, marks, first, n)
            values[:, first : first + COLUMN_BLOCK] = out[:, :n]
        return flags

    def _call(self, a: Carrier, b: Carrier, out: Carrier, marks: Marks, first: int, n: int) -> int:
        """The flags of the first n columns."""
        flags: int = self._loop(
            a, b, out, marks, self._given, self._product.constants, self._total.constants, first,
            self._n, self._seed, self._number,
        )  # fmt: skip
        return fold(marks[:, :n]) if self._each else flags


def _variant(chain: str, product: Plan, level: int, words: int) -> RoundedVariant:
    return RoundedVariant(
        list(CHAINS).index(chain), product.mode, level, product.flush, product.one_zero, words,
        product.residual,
    )  # fmt: skip


def _panels(b: Carrier) -> Carrier:
    k, n = b.shape
    count = -(-n // COLUMN_BLOCK)
    wide = np.zeros((k, count * COLUMN_BLOCK), b.dtype)
    wide[:, :n] = b
    return np.ascontiguousarray(wide.reshape(k, count, COLUMN_BLOCK).swapaxes(0, 1))


def _given(context: Context, places: int, m: int, n: int) -> Words:
    """The integers R of every place, with room for vectors that reach over the last output."""
    drawn = context.source.draw(context.operation, (places, m, n), context.settings.random_most)
    words = np.zeros((places, m * n + COLUMN_BLOCK), np.uint32)
    if drawn is not None:
        words[:, : m * n] = drawn.reshape(places, m * n)
    return words
