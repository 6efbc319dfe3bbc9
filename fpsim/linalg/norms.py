"""Norms and condition numbers, computed by the context's own operations.

Source    docs/linear-algebra.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.context import Context
from fpsim.linalg.factors import inv
from fpsim.linalg.operands import checked_choice, context_of, square
from fpsim.state.processor import usual_arithmetic

__all__ = ["cond", "norm"]


@usual_arithmetic
def norm(x: Array, ord: Any = None, *, context: Context | None = None) -> Array:
    """A norm of a vector or a matrix, every operation rounded.

    ord   vectors: 2 (default), 1, inf; matrices: "fro" (default), 1 (largest column sum), inf
          (largest row sum).

    Shapes    x (N,) or (M, N): the result has no axes; of no elements it is +0.
    Rounding  2 and "fro": the square of every element, their sum in C order, one root; nothing is
              scaled, so squares overflow and underflow. Sums of magnitudes are taken in order.
    Flags     of these operations.
    Raises    ValueError for other norms and shapes: the 2-norm of a matrix needs singular values,
              which are not computed here.

    >>> import fpsim as fp
    >>> x = fp.Context("binary16").array([3.0, 4.0])
    >>> float(norm(x)), float(norm(x, 1)), float(norm(x, np.inf))
    (5.0, 7.0, 4.0)
    """
    context = context_of(context, x)
    if x.ndim not in (1, 2):
        raise ValueError(f"x has shape {x.shape}; give a vector or a matrix")
    usual = 2 if x.ndim == 1 else "fro"
    others = "; others in binary64: np.linalg.norm(x.values, ord)"
    kind = checked_choice("ord", usual if ord is None else ord, (usual, 1, np.inf), others)
    if kind == usual:
        return context.sqrt(context.sum(context.multiply(x, x)))
    sizes = context.absolute(x)
    if x.ndim == 2:
        sizes = context.sum(sizes, 0 if kind == 1 else 1)
    elif kind == 1:
        return context.sum(sizes)
    return context.max(sizes) if sizes.size else context.zeros(())


@usual_arithmetic
def cond(a: Array, p: Any = 1, *, context: Context | None = None) -> Array:
    """The condition number norm(a, p) norm(inv(a), p), every operation rounded.

    p   1, inf or "fro".

    Raises    ValueError for p = 2, which needs singular values: np.linalg.cond(a.values) has them
              in binary64; LinAlgError for a matrix whose U has a zero on its diagonal.

    >>> import fpsim as fp
    >>> float(cond(fp.Context("binary16").array([[2.0, 0.0], [0.0, 0.5]])))
    4.0
    """
    context = context_of(context, square(a))
    others = "; others in binary64: np.linalg.cond(a.values, p)"
    p = checked_choice("p", p, (1, np.inf, "fro"), others)
    inverse = inv(a, context=context)
    return context.multiply(norm(a, p, context=context), norm(inverse, p, context=context))
