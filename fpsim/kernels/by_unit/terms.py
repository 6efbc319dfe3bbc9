"""The terms of a unit call, as formulas read them from the operands of a tile.

A tile has eight vectors. Vector i belongs to the row at x[i] of the left operand, whose terms stand
at offsets from there, and to the columns at y or, in lanes of 64 bits where a panel is two vectors
wide, eight columns further on. A term has one left factor for all columns or, lanewise, one for
each, side by side.

A formula takes a term of all vectors before the next one: the right factor is loaded once for all
rows, the left one once for all columns, and neither waits in a register.
"""

from __future__ import annotations

from fpsim.kernels.lanes.arithmetic import beside, item, moved, plus
from fpsim.kernels.lanes.memory import load_float, load_raw, spread_like
from fpsim.kernels.lanes.vectors import as_bits, infinity_like, lanes_of, select

__all__ = ["COLUMNS", "exponents", "if_finite", "values"]

#: Columns of a panel.
COLUMNS = 16


def values(terms, c, a, x, o, b, y, order=None):
    """Both factors of every term, for each vector of a tile, in this order of them."""
    offsets, q = o
    for t in range(terms):
        at = item(offsets, plus(q, t))
        columns = [plus(column, COLUMNS * t) for column in _columns(c, y)]
        yield [
            (_factor(a, moved(a[0], x[i]), at, c), load_float(b[0], columns[i], c[0]))
            for i in order or range(len(c))
        ]


def exponents(terms, c, a, x, o, b, y):
    """Exponents of every product, as fields, for each vector of a tile."""
    offsets, q = o
    for t in range(terms):
        at = item(offsets, plus(q, t))
        columns = [plus(column, COLUMNS * t) for column in _columns(c, y)]
        yield [
            _field(a, moved(a[0], row), at, c) + load_raw(b[1], j, c[0])
            for row, j in zip(x, columns, strict=True)
        ]


def _factor(a, row, at, c):
    """The left factor of a vector: one for all of its columns or, lanewise, one for each."""
    return load_float(row, at, c[0]) if _is_lanewise(a) else spread_like(row, at, c[0])


def _field(a, row, at, c):
    """Its exponent, as far from it as one table is from the other.

    Both are read from the address where the row begins, which stays in a register.
    """
    fields = beside(row, at, a[0], a[1])
    return load_raw(fields, 0, c[0]) if _is_lanewise(a) else spread_like(fields, 0, c[0])


def _columns(c, y):
    """Where the columns of each vector begin in a panel's row."""
    lanes = lanes_of(c[0])
    return [plus(y, i * lanes % COLUMNS) for i in range(len(c))]


def _is_lanewise(a):
    """Whether each column has left factors of its own: the loop says so by a third item."""
    return len(a) == 3


def if_finite(c, totals):
    """The totals, or the accumulators themselves where these are infinite or NaN."""
    accumulators = []
    for acc, total in zip(c, totals, strict=True):
        bits = as_bits(acc)
        finite = (bits & infinity_like(bits)) != infinity_like(bits)
        accumulators.append(select(finite, total, acc))
    return tuple(accumulators)
