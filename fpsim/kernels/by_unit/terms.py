"""The terms of a unit call, as formulas read them from the operands of a tile.

A tile has eight vectors. Vector i belongs to the row at x[i] of the left operand, whose terms stand
at offsets from there, and to the columns at y or, in lanes of 64 bits where a panel is two vectors
wide, eight columns further on. A term has one left factor for all columns or, lanewise, one for
each, side by side.
"""

from __future__ import annotations

from fpsim.kernels.lanes.arithmetic import item, plus, spread_item
from fpsim.kernels.lanes.memory import load, load_float
from fpsim.kernels.lanes.vectors import as_bits, infinity_like, select, width_of

__all__ = ["COLUMNS", "each", "exponents", "if_finite", "values"]

#: Columns of a panel.
COLUMNS = 16


def each(step, what, c, a, x, o, b, y, numbers):
    """step(what, acc, a, row, offsets, b, column, numbers) for every vector of a tile."""
    lanes = 512 // width_of(c[0])
    return tuple(
        step(what, acc, a, x[i], o, b, plus(y, i * lanes % COLUMNS), numbers)
        for i, acc in enumerate(c)
    )


def values(terms, acc, a, x, o, b, y):
    """Both factors of every term."""
    offsets, q = o
    for t in range(terms):
        index = plus(x, item(offsets, plus(q, t)))
        left = load_float(a[0], index, acc) if _is_lanewise(a) else spread_item(a[0], index)
        yield left, load_float(b[0], plus(y, COLUMNS * t), acc)


def exponents(terms, a, x, o, b, y):
    """Exponents of every product, as fields."""
    offsets, q = o
    for t in range(terms):
        index = plus(x, item(offsets, plus(q, t)))
        left = load(a[1], index) if _is_lanewise(a) else spread_item(a[1], index)
        yield left + load(b[1], plus(y, COLUMNS * t))


def _is_lanewise(a):
    """Whether each column has left factors of its own: the loop says so by a third item."""
    return len(a) == 3


def if_finite(acc, total):
    """The total, or the accumulator itself where that is infinite or NaN."""
    bits = as_bits(acc)
    return select((bits & infinity_like(bits)) != infinity_like(bits), total, acc)
