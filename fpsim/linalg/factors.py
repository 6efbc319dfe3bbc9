"""Factorisations by elimination: LU with row exchanges, Cholesky; systems and inverses by them.

Both are the outer-product (right-looking) forms, whose steps are updates of rank one.

Source    N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002, §9.1 and §10.1;
          docs/linear-algebra.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.context import Context
from fpsim.elementwise.apply import as_read
from fpsim.linalg.operands import (
    checked_choice,
    context_of,
    matrix,
    right_side,
    square,
    subtract_outer,
)
from fpsim.linalg.triangular import substituted
from fpsim.state.processor import usual_arithmetic

__all__ = ["LU", "cholesky", "inv", "lu", "solve"]


@dataclass(frozen=True)
class LU:
    """Factors of a matrix whose rows were exchanged: a[p] = L U up to roundings.

    packed   L below the diagonal, whose own diagonal is 1, and U.
    p        row i of L U is row p[i] of the matrix.

    `L, U, p = lu(a)` unpacks it.

    >>> import fpsim as fp
    >>> half = fp.Context("binary16")
    >>> factors = lu(half.array([[1.0, 3.0], [2.0, 4.0]]))
    >>> isinstance(factors, LU), factors.packed.tolist(), factors.p.tolist()
    (True, [[2.0, 4.0], [0.5, 1.0]], [1, 0])
    >>> factors.singular, lu(half.array([[1.0, 2.0], [2.0, 4.0]])).singular
    (None, 1)
    """

    packed: Array
    p: NDArray[np.intp]

    @property
    def L(self) -> Array:
        """The lower factor, (M, min(M, N)), with its unit diagonal."""
        m, n = self.packed.shape
        least = min(m, n)
        lower = np.tril(self.packed.carrier[:, :least], -1)
        lower[np.arange(least), np.arange(least)] = 1
        return self.packed.like(lower)

    @property
    def U(self) -> Array:
        """The upper factor, (min(M, N), N)."""
        return self.packed.like(np.triu(self.packed.carrier[: min(self.packed.shape)]))

    def __iter__(self) -> Iterator[Any]:
        return iter((self.L, self.U, self.p))

    @property
    def singular(self) -> int | None:
        """The first zero on the diagonal of U; None where there is none."""
        diagonal = as_read(np.diagonal(self.packed.carrier), self.packed.context.core.settings)
        zeros = np.flatnonzero(diagonal == 0)
        return int(zeros[0]) if zeros.size else None

    def to(self, context: Context) -> LU:
        """These factors in another context: every number is converted."""
        return LU(self.packed.to(context), self.p)

    @usual_arithmetic
    def solve(self, b: Array, *, context: Context | None = None) -> Array:
        """x with a x = b: rows exchanged, then substitution with L and with U.

        Rounding  as `solve_triangular`, in the context (default: that of the factors).
        Raises    LinAlgError where U has a zero on its diagonal.
        """
        packed = square(self.packed)
        b = right_side(b, len(packed))
        context = context_of(context, packed, b)
        self.check_regular()
        y = substituted(context, packed, b[self.p], True, True)
        return substituted(context, packed, y, False, False)

    def check_regular(self) -> None:
        """Refuse factors that solve no system."""
        if (i := self.singular) is not None:
            raise np.linalg.LinAlgError(
                f"U[{i}, {i}] is 0: the matrix is singular in {self.packed.format.name}; factor it "
                "in a wider format"
            )


@usual_arithmetic
def lu(a: Array, *, pivot: bool = True, context: Context | None = None) -> LU:
    """L and U with a[p] = L U, by elimination with partial pivoting, every operation rounded.

    pivot   exchange rows so that the first of the largest magnitudes of a column is its pivot (a
            NaN counts as largest); False leaves rows where they are.

    Shapes    a (M, N).
    Rounding  for each column k: l = a[k+1:, k] / a[k, k]; then a[i, j] = a[i, j] - l[i] a[k, j] for
              all i, j > k, first all products, then all differences, as `l = …; a -= outer(l, u)`
              does. A pivot of 0 in a column of zeros has factors 0 and no operations.
    Flags     of these operations; none for comparing magnitudes and exchanging rows.
    Raises    ValueError for what is no matrix.
    Source    docs/linear-algebra.md.

    >>> import fpsim as fp
    >>> half = fp.Context("binary16")
    >>> L, U, p = lu(half.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> p.tolist(), L.tolist(), U.tolist()
    ([1, 0], [[1.0, 0.0], [0.333251953125, 1.0]], [[3.0, 4.0], [0.0, 0.6669921875]])
    """
    checked_choice("pivot", pivot, (False, True))
    context = context_of(context, matrix(a))
    work = Array(np.ascontiguousarray(a.carrier).copy(), context)
    m, n = a.shape
    rows = np.arange(m)
    for k in range(min(m - 1, n)):
        if pivot:
            _exchange(work, rows, k)
        column = work[k + 1 :, k]
        if not as_read(work.carrier[k : k + 1, k], context.core.settings)[0] and not column.any():
            column.carrier[...] = 0  # of one sign, as factors that were never divided
            continue
        context.divide(column, work[k, k], out=column)
        subtract_outer(context, work, (k + 1, m, k + 1, n), column, work[k, k + 1 :])
    return LU(work, rows)


def _exchange(work: Array, rows: NDArray[np.intp], k: int) -> None:
    """Bring the row with the largest magnitude of column k to its place."""
    column = as_read(work.carrier[k:, k], work.context.core.settings)
    # Magnitudes as integers: NaNs lie above infinity, and all alike.
    keys = np.abs(column).view(f"i{column.itemsize}")
    infinity = np.array(np.inf, column.dtype).view(keys.dtype)
    largest = k + int(np.argmax(np.minimum(keys, infinity + 1)))
    if largest != k:
        work.carrier[[k, largest]] = work.carrier[[largest, k]]
        rows[[k, largest]] = rows[[largest, k]]


@usual_arithmetic
def cholesky(a: Array, *, context: Context | None = None) -> Array:
    """The lower triangular L with a = L L^T, every operation rounded.

    Shapes    a (N, N), symmetric.
    Rounding  for each column k: L[k, k] = sqrt(a[k, k]), l = a[k+1:, k] / L[k, k]; then
              a[i, j] = a[i, j] - l[i] l[j] for all i, j > k, first all products, then all
              differences; the lower triangle of a is read.
    Flags     of these operations.
    Raises    ValueError for a matrix that is not symmetric; LinAlgError for a pivot that is not
              positive.
    Source    docs/linear-algebra.md.

    >>> import fpsim as fp
    >>> cholesky(fp.Context("binary16").array([[4.0, 2.0], [2.0, 3.0]])).tolist()
    [[2.0, 0.0], [1.0, 1.4140625]]
    """
    context = context_of(context, square(a))
    if not np.array_equal(a.carrier, a.carrier.T, equal_nan=True):
        raise ValueError(
            "a is not symmetric; cholesky takes a symmetric matrix: give (a + a.T) / 2, rounded as "
            "you like"
        )
    n, work = len(a), Array(np.ascontiguousarray(a.carrier).copy(), context)
    for k in range(n):
        pivot = work[k : k + 1, k]
        if not (pivot > 0).all():
            raise np.linalg.LinAlgError(
                f"pivot {k} is {float(pivot):g}: the matrix is not positive definite in "
                f"{context.format.name}; add to its diagonal, or take a wider format"
            )
        context.sqrt(pivot, out=pivot)
        column = work[k + 1 :, k]
        context.divide(column, pivot, out=column)
        subtract_outer(context, work, (k + 1, n, k + 1, n), column, column)
    return work.like(np.tril(work.carrier))


@usual_arithmetic
def solve(a: Array, b: Array, *, context: Context | None = None) -> Array:
    """x with a x = b: `lu` with partial pivoting, then substitution.

    Raises    LinAlgError where U has a zero on its diagonal.

    >>> import fpsim as fp
    >>> half = fp.Context("binary16")
    >>> solve(half.array([[2.0, 1.0], [1.0, 3.0]]), half.array([3.0, 4.0])).tolist()
    [1.0, 1.0]
    """
    a = square(a)
    b = right_side(b, len(a))
    context = context_of(context, a, b)
    return lu(a, context=context).solve(b, context=context)


@usual_arithmetic
def inv(a: Array, *, context: Context | None = None) -> Array:
    """The inverse: `solve` with the columns of the unit matrix.

    >>> import fpsim as fp
    >>> inv(fp.Context("binary16").array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    context = context_of(context, square(a))
    unit = Array(np.eye(len(a), dtype=a.carrier.dtype), context)
    return lu(a, context=context).solve(unit, context=context)
