"""How sums and products leave their context's flags, counts and result behind.

Their operands do not broadcast to the result, so they do not go through `Context.publish`; the
rules are the same: checks first, flags before a trap, nothing published by an operation that traps.

Source    docs/semantics.md §3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.apply import Carrier, check_out
from fpsim.records.flags import Flags, FloatingPointTrap

if TYPE_CHECKING:
    from fpsim.context import Context

__all__ = ["Out", "checked_target", "fold_flags", "published", "row_and_column", "wants_marks"]

Marks = NDArray[np.uint8]
Out = Array | Carrier | None


def checked_target(context: Context, out: Out, shape: tuple[int, ...]) -> Carrier | None:
    """Memory of the result, refused before anything is computed; None for new memory."""
    if isinstance(out, Array):
        if out.format != context.format:
            raise TypeError(f"out is {out.format}, this context computes {context.format}")
        out = out.values
    if out is not None:
        check_out(out, shape, context.format.carrier, [])
    return out


def wants_marks(context: Context) -> bool:
    """Whether the flags of each element are needed."""
    return bool(context.traps) or context.counts is not None


def fold_flags(
    context: Context,
    name: str,
    flags: int,
    values: Carrier,
    marks: Marks | None,
    operands: Callable[[tuple[int, ...]], Sequence[Carrier]] = lambda index: (),
) -> None:
    """Flags and counts of an operation into its context; `marks` as `wants_marks` says.

    A trap shows the `operands` of the element at its index.

    Raises    FloatingPointTrap at the first element in C order that raised an armed flag.
    """
    if marks is None and not flags:
        return
    raised = Flags(flags)
    context.flags |= raised
    if marks is None:
        return
    if raised & context.traps:
        first = int(np.argmax((marks.reshape(-1) & int(context.traps)) != 0))
        index = tuple(int(i) for i in np.unravel_index(first, values.shape)) if values.ndim else ()
        raise FloatingPointTrap(name, raised, index, operands(index), context.dump())
    if context.counts is not None:
        context.counts.add(name, values, marks, context.format)


def row_and_column(a: Carrier, b: Carrier, index: tuple[int, ...]) -> tuple[Carrier, Carrier]:
    """What one element of a product is made of: a row of a and a column of b."""
    *batch, i, j = index
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = np.broadcast_to(a, (*lead, *a.shape[-2:]))
    columns = np.broadcast_to(b, (*lead, *b.shape[-2:]))
    return rows[(*batch, i)], columns[tuple(batch)][:, j]


def published(context: Context, values: Carrier, target: Carrier | None, out: Out) -> Array:
    """The result as an Array, in `out` where that was given."""
    if target is None:
        return Array(values, context)
    target[...] = values
    return out if isinstance(out, Array) else Array(target, context)
