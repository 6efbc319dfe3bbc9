"""Inner products of long vectors: products elementwise, then the chain of their sum.

The engines of products keep vectors of outputs side by side; one output would leave most of each
empty and its operands be written out for all. Here a bounded number of products is in memory at a
time, but for `kahan`, whose sum is one chain.

Source    docs/semantics.md §4 (dot: fl(a0 b0), then fl(acc + fl(ak bk))).
"""

from __future__ import annotations

import numpy as np

from fpsim.elementwise.apply import apply
from fpsim.kernels.elementwise.step import FLAGS_EACH, FLAGS_STICKY
from fpsim.products.by_operation.chain import Chain
from fpsim.products.sums import RowSums
from fpsim.records.types import Carrier, ElementFlags, Shape

__all__ = ["is_long_dot", "long_dot"]

#: Terms of a dot from which this is the shorter way, and products at a time.
_LEAST, _CHUNK = 1 << 12, 1 << 16


def is_long_dot(chain: Chain, a: Shape, b: Shape) -> bool:
    """Whether the product of matrices of these shapes is one long sum of rounded products.

    Not where random bits are drawn: those of products have places of their own.
    """
    return (
        a[:-1] == (1,) and b[1:] == (1,) and a[-1] >= _LEAST and chain.name != "fused"
        and not chain.settings.rounding.stochastic
    )


def long_dot(
    chain: Chain, a: Carrier, b: Carrier, *, watched: bool
) -> tuple[Carrier, int, ElementFlags | None]:
    """Values (1, 1), flags, and the flags of the output where it is `watched`.

    >>> from fpsim.records.formats import BINARY16
    >>> from fpsim.records.settings import Settings
    >>> chain = Chain(Settings(BINARY16), "separate")
    >>> x = np.ones((1, 5000), np.float32)
    >>> long_dot(chain, x, x.T, watched=False)
    (array([[2048.]], dtype=float32), 1, None)
    """
    x, y = a[0], b[:, 0]
    order, step = ("kahan", len(x)) if chain.name == "kahan" else ("sequential", _CHUNK)
    total, flags = np.empty(0, x.dtype), 0
    for first in range(0, len(x), step):
        terms, raised = apply(
            "multiply", (x[first : first + step], y[first : first + step]), chain.settings
        )
        row = np.concatenate([total, terms])[None]
        sums = RowSums(chain.settings, order, row, 1)
        total, more, _ = sums.run(FLAGS_EACH if watched else FLAGS_STICKY, divide=False)
        flags |= raised | more
    element_flags = np.full((1, 1), flags, np.uint8) if watched else None
    return total[None], flags, element_flags
