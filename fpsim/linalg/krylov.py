"""GMRES: residuals minimised over Krylov's spaces, with one context for each role.

Source    Y. Saad, M. H. Schultz, GMRES, SIAM J. Sci. Stat. Comput. 7 (1986); E. Carson,
          N. J. Higham, SIAM J. Sci. Comput. 39 (2017), A2834 (roles); docs/linear-algebra.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fpsim.array import Array
from fpsim.context import Context
from fpsim.elementwise.sizes import checked_count
from fpsim.linalg.factors import LU
from fpsim.linalg.norms import norm
from fpsim.linalg.operands import context_of, right_side, square
from fpsim.linalg.triangular import substituted
from fpsim.state.processor import usual_arithmetic

__all__ = ["Solution", "checked_tolerance", "gmres"]


#: Iterations where none are asked for: each costs products with all vectors before it.
_MOST = 500


@dataclass(frozen=True)
class Solution:
    """What an iteration found.

    converged   the residual is small enough.
    iterations  products with the matrix.
    residuals   norms of the (preconditioned) residual over that of the right side, by GMRES's own
                recurrence; the first one is 1.

    >>> import fpsim as fp
    >>> single = fp.Context("binary32")
    >>> a, b = single.array([[4.0, 1.0], [1.0, 3.0]]), single.array([1.0, 2.0])
    >>> one_step = gmres(a, b, max_iterations=1)
    >>> isinstance(one_step, Solution), one_step.converged, one_step.iterations
    (True, False, 1)
    >>> [f"{residual:.2f}" for residual in one_step.residuals]
    ['1.00', '0.24']
    """

    x: Array
    converged: bool
    iterations: int
    residuals: tuple[float, ...]


@usual_arithmetic
def gmres(
    a: Array, b: Array, *, factors: LU | None = None, tolerance: float | None = None,
    max_iterations: int | None = None, context: Context | None = None,
) -> Solution:
    """x with a x = b by GMRES from x = 0, without restarts.

    factors         of `lu`: a preconditioner from the left, U^-1 L^-1, applied in the context of a.
    tolerance       of the residual; default: the root of the unit roundoff of the context.
    max_iterations  default: N, at most 500.
    context         of the basis and all that is computed with it (default: that of b); products
                    with a, and the factors, are applied in the context of a.

    Where the norm of the (preconditioned) b overflows or underflows, x is that vector, after 0
    iterations and not converged: scale b.

    Shapes    a (N, N), b (N,).
    Rounding  every operation: Arnoldi's basis by modified Gram-Schmidt, each dot product with terms
              in order; Givens' rotations c = h / t, s = h' / t with t = sqrt(h h + h' h'); back
              substitution; x = V y with terms in order. A vector is converted where it goes from
              one context to the other.
    Flags     of these operations, in the context of each.
    Raises    ValueError for shapes that do not agree; LinAlgError for singular factors.
    Source    docs/linear-algebra.md.

    >>> import fpsim as fp
    >>> single = fp.Context("binary32")
    >>> a, b = single.array([[4.0, 1.0], [1.0, 3.0]]), single.array([1.0, 2.0])
    >>> solution = gmres(a, b, tolerance=1e-6)
    >>> solution.converged, solution.iterations, (solution.x.values * 11).round(3).tolist()
    (True, 2, [1.0, 7.0])
    """
    a = square(a)
    b = right_side(b, len(a))
    if b.ndim != 1:
        raise ValueError(f"b has shape {b.shape}; give a vector of {len(a)} elements")
    basis = context_of(context, b)
    tolerance = checked_tolerance(tolerance, math.sqrt(basis.format.eps / 2))
    most = _MOST if max_iterations is None else checked_count("max_iterations", max_iterations, 1)
    applied = _Applied(a, factors)
    right = basis.array(applied.preconditioned(a.context.array(b)))
    return _Arnoldi(basis, applied, right).run(tolerance, min(most, len(a)))


def checked_tolerance(tolerance: float | None, usual: float) -> float:
    """A tolerance that was asked for, or the usual one."""
    if tolerance is None:
        return usual
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not tolerance >= 0:
        raise ValueError(f"tolerance={tolerance!r} is not allowed; give a number from 0 on")
    return float(tolerance)


class _Applied:
    """The preconditioned matrix, in its own context."""

    def __init__(self, a: Array, factors: LU | None) -> None:
        self.a, self.context, self.packed = a, a.context, None
        if factors is not None:
            if not isinstance(factors, LU) or factors.packed.shape != a.shape:
                raise TypeError(f"factors={factors!r} are no factors of a; give fpsim.linalg.lu(a)")
            factors.check_regular()
            self.packed, self.p = self.context.array(factors.packed), factors.p

    def preconditioned(self, w: Array) -> Array:
        """U^-1 L^-1 of a vector whose rows were exchanged."""
        if self.packed is None:
            return w
        y = substituted(self.context, self.packed, w[self.p], True, True)
        return substituted(self.context, self.packed, y, False, False)

    def __call__(self, v: Array) -> Array:
        column = self.context.array(v).reshape(-1, 1)
        return self.preconditioned(self.context.matmul(self.a, column).reshape(-1))


class _Arnoldi:
    """Basis, rotated Hessenberg matrix and right side of one run; vectors are rows."""

    def __init__(self, context: Context, apply: _Applied, right: Array) -> None:
        self.context, self.apply = context, apply
        self.size = norm(right, context=context)
        self.columns: list[list[Array]] = []
        self.rotations: list[tuple[Array, Array]] = []
        self.right = [self.size]
        self.basis = [right]

    def run(self, tolerance: float, most: int) -> Solution:
        size, residuals = float(self.size), [1.0]
        if size == 0 or not math.isfinite(size):
            # Squares of small numbers are zero, too; only zeros have the solution 0.
            is_zero = not self.basis[0].any()
            return Solution(self.basis[0].copy(), is_zero, 0, (0.0 if is_zero else 1.0,))
        self.basis[0] = self.context.divide(self.basis[0], self.size)
        while len(self.columns) < most:
            is_last = self._extend()
            residuals.append(abs(float(self.right[-1])) / size)
            if is_last or not residuals[-1] > tolerance:
                break
        converged = residuals[-1] <= tolerance
        return Solution(self._combined(), converged, len(self.columns), tuple(residuals))

    def _extend(self) -> bool:
        """One vector and one column more; whether no further vector exists."""
        context = self.context
        w, column = context.array(self.apply(self.basis[-1])), []
        for v in self.basis:
            h = context.dot(w, v)
            column.append(h)
            w = context.subtract(w, context.multiply(h, v))
        length = norm(w, context=context)
        is_last = not 0 < float(length) < math.inf
        if not is_last:
            self.basis.append(context.divide(w, length))
        self._rotate(column, length)
        return is_last

    def _rotate(self, column: list[Array], below: Array) -> None:
        """Turn a column by the rotations so far, and by one that makes `below` zero."""
        multiply, add, subtract = self.context.multiply, self.context.add, self.context.subtract
        for i, (c, s) in enumerate(self.rotations):
            upper, lower = column[i], column[i + 1]
            column[i] = add(multiply(c, upper), multiply(s, lower))
            column[i + 1] = subtract(multiply(c, lower), multiply(s, upper))
        last = column[-1]
        t = self.context.sqrt(add(multiply(last, last), multiply(below, below)))
        c, s = self.context.divide(last, t), self.context.divide(below, t)
        column[-1] = t
        self.columns.append(column)
        self.rotations.append((c, s))
        g = self.right[-1]
        self.right[-1] = multiply(c, g)
        self.right.append(self.context.negative(multiply(s, g)))

    def _combined(self) -> Array:
        """The vectors of the basis, weighted by the solution of the triangular system."""
        context, k = self.context, len(self.columns)
        upper, right = context.zeros((k, k)), context.zeros(k)
        for j, column in enumerate(self.columns):
            right[j] = self.right[j]
            for i, h in enumerate(column):
                upper[i, j] = h
        y = substituted(context, upper, right, False, False)
        vectors = context.zeros((self.basis[0].size, k))
        for j, v in enumerate(self.basis[:k]):
            vectors[:, j] = v
        return context.matmul(vectors, y.reshape(-1, 1)).reshape(-1)
