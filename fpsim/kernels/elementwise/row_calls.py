"""One operation on rows of arrays in one call, each row with a key and flags of its own.

Each row runs in the loop that was compiled for the operation (`loop.kernel`), called by its
address: what comes out is what the loop gives row after row.

Source    docs/semantics.md §2 (bits of element i of operation n depend on seed, n and i alone).
"""

from __future__ import annotations

from fpsim.kernels.compiling import compiled
from fpsim.kernels.elementwise.sequence import call_loop

__all__ = ["call_rows"]


@compiled
def call_rows(
    address, x, y, z, out, flags, seeds, no_flags, no_words, constants, first, operation, begin, end
):
    """Rows from begin to end of out, and the flags of each; operands have as many rows, or one."""
    streaming = begin < 0  # never: rows stay in the caches
    for r in range(begin, end):
        flags[r] = call_loop(
            address, x[r if x.shape[0] > 1 else 0], y[r if y.shape[0] > 1 else 0],
            z[r if z.shape[0] > 1 else 0], out[r], no_flags, no_words, constants, first, seeds[r],
            operation, streaming,
        )
