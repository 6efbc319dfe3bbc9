"""Triangular systems by substitution, column after column.

Source    N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002, §8.1 (by columns);
          docs/linear-algebra.md.
"""

from __future__ import annotations

from fpsim.array import Array
from fpsim.context import Context
from fpsim.linalg.operands import checked_choice, context_of, right_side, square, subtract_outer
from fpsim.state.processor import usual_arithmetic

__all__ = ["solve_triangular", "substituted"]


@usual_arithmetic
def solve_triangular(
    a: Array, b: Array, *, lower: bool = False, unit_diagonal: bool = False,
    context: Context | None = None,
) -> Array:
    """x with a x = b for a triangular matrix a, every operation rounded.

    lower           a is lower triangular, and its rows are taken from the first; else upper, from
                    the last. The other triangle is not read.
    unit_diagonal   the diagonal is 1 and is not read.

    Shapes    a (N, N), b (N,) or (N, M): the result has b's shape.
    Rounding  for each row i: x[i] = b[i] / a[i, i] (not with a unit diagonal); then for the rows
              that are left b[j] = b[j] - a[j, i] x[i], first all products, then all differences.
    Flags     of these operations; a zero on the diagonal raises DIVBYZERO, or INVALID for 0 / 0.
    Raises    ValueError for shapes that do not agree, TypeError for other formats.
    Source    docs/linear-algebra.md.

    >>> import fpsim as fp
    >>> half = fp.Context("binary16")
    >>> solve_triangular(half.array([[3.0, 1.0], [0.0, 2.0]]), half.array([1.0, 1.0]))
    Array([0.16662598, 0.5       ], binary16)
    """
    checked_choice("lower", lower, (False, True))
    checked_choice("unit_diagonal", unit_diagonal, (False, True))
    a = square(a)
    b = right_side(b, len(a))
    return substituted(context_of(context, a, b), a, b, lower, unit_diagonal)


def substituted(context: Context, a: Array, b: Array, lower: bool, unit_diagonal: bool) -> Array:
    """The same of operands that are checked."""
    n, x = len(a), Array(b.carrier.copy(), context)
    a = Array(a.carrier, context)
    for step in range(n):
        i = step if lower else n - 1 - step
        if not unit_diagonal:
            pivot = x[i : i + 1]
            context.divide(pivot, a[i, i], out=pivot)
        first, last = (i + 1, n) if lower else (0, i)
        if first == last:
            continue
        column = a[first:last, i]
        if x.ndim == 1:
            subtract_outer(context, x.reshape(1, n), (0, 1, first, last), x[i : i + 1], column)
        else:
            subtract_outer(context, x, (first, last, 0, x.shape[1]), column, x[i])
    return x
