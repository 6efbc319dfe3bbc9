"""QR by Householder's reflections.

Source    N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002, §19.1; LAPACK's dlarfg
          and dgeqr2, whose scaling and vectors with a leading 1 are taken, not its rescaling of
          small numbers; docs/linear-algebra.md.
"""

from __future__ import annotations

import numpy as np

from fpsim.array import Array
from fpsim.context import Context
from fpsim.linalg.norms import norm
from fpsim.linalg.operands import checked_choice, context_of, matrix, subtract_outer
from fpsim.state.processor import usual_arithmetic

__all__ = ["qr"]


@usual_arithmetic
def qr(a: Array, mode: str = "reduced", *, context: Context | None = None) -> tuple[Array, Array]:
    """Q and R with a = Q R, by Householder's reflections, every operation rounded.

    mode   reduced: Q (M, K), R (K, N) with K = min(M, N); complete: Q (M, M), R (M, N).

    Rounding  for each column k with x = a[k:, k]: s = norm(x), beta = -s with the sign of x[0];
              tau = (beta - x[0]) / beta, v = x / (x[0] - beta) with v[0] = 1;
              w = tau (v^T a[k:, k+1:]), the product's terms in order; a[k:, k+1:] -= v w. A column
              that is zero below its first element is not reflected. Q is the product of the
              reflections, applied to the unit matrix from the last one on, in the same way.
    Flags     of these operations.
    Raises    ValueError for what is no matrix and for other modes.
    Source    docs/linear-algebra.md.

    >>> import fpsim as fp
    >>> Q, R = qr(fp.Context("binary16").array([[3.0, 0.0], [4.0, 5.0]]))
    >>> R.tolist()
    [[-5.0, -4.0], [0.0, 3.0]]
    """
    checked_choice("mode", mode, ("reduced", "complete"))
    context = context_of(context, matrix(a))
    work = Array(np.ascontiguousarray(a.carrier).copy(), context)
    m, n = a.shape
    least = min(m, n)
    reflections = []
    for k in range(min(m - 1, n)):
        reflection = _reflection(context, work[k:, k])
        reflections.append(reflection)
        if reflection is None:
            continue
        beta, tau, v = reflection
        _reflect(context, work, k, k + 1, tau, v)
        work[k, k] = beta
        work.carrier[k + 1 :, k] = 0
    columns = m if mode == "complete" else least
    unit = Array(np.eye(m, columns, dtype=work.carrier.dtype), context)
    for k in reversed(range(len(reflections))):
        if (reflection := reflections[k]) is not None:
            _reflect(context, unit, k, k, *reflection[1:])
    return unit, work[: columns if mode == "complete" else least]


def _reflection(context: Context, x: Array) -> tuple[Array, Array, Array] | None:
    """beta, tau and v of the reflection that takes x to beta times the first unit vector."""
    if not x[1:].any():
        return None
    first = x[0]
    beta = context.copysign(norm(x, context=context), context.negative(first))
    tau = context.divide(context.subtract(beta, first), beta)
    v = context.divide(x, context.subtract(first, beta))
    v[0] = 1
    return beta, tau, v


def _reflect(context: Context, work: Array, row: int, column: int, tau: Array, v: Array) -> None:
    """Apply a reflection to the rows and columns from these on."""
    m, n = work.shape
    if column == n:
        return
    w = context.matmul(v.reshape(1, -1), work[row:, column:])
    w = context.multiply(tau, w)
    subtract_outer(context, work, (row, m, column, n), v, w.reshape(-1))
