"""Products whose every multiplication and addition is rounded in a context.

Source    docs/semantics.md §2 (places) and §4 (order).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fpsim.array import Array
from fpsim.elementwise.apply import Carrier
from fpsim.products.by_operation.calls import Bits
from fpsim.products.by_operation.fast import run_macs
from fpsim.products.by_operation.general import GeneralProduct
from fpsim.records.formats import BINARY64
from fpsim.state.bits import Philox
from fpsim.state.publish import Marks, checked_target, fold_flags, published, wants_marks

if TYPE_CHECKING:
    from fpsim.context import Context

__all__ = ["dot", "rounded_matmul"]


#: Share of rows and columns with infinities or NaN above which all goes the slow way.
_MOST_SPECIAL = 0.5


def rounded_matmul(
    a: Array, b: Array, *, context: Context | None = None, fused: bool = False,
    kahan: bool = False, out: Array | Carrier | None = None,
) -> Array:  # fmt: skip
    """The product a @ b with every operation rounded, terms in ascending order.

    acc = fl(a0 b0), then acc = fl(acc + fl(ak bk)).

    fused   one rounding per term: acc = fl(acc + ak bk).
    kahan   a compensated sum of the rounded products.

    Shapes    a (M, K), b (K, N): result (M, N). With K = 0 it is +0.
    Rounding  after every product and every addition, in the context (default: that of a).
    Flags     those of all the operations.
    Source    docs/semantics.md §4.

    >>> import fpsim as fp
    >>> half = fp.Context(fp.BINARY16)
    >>> row, column = half.array([[1.0, 2.0**-11, 2.0**-11]]), half.array([[1.0]] * 3)
    >>> [float(rounded_matmul(row, column, kahan=k).values[0, 0]) for k in (False, True)]
    [1.0, 1.0009765625]
    """
    context = context or a.context
    if fused and kahan:
        raise ValueError("fused=True and kahan=True exclude each other; choose one")
    if context.format == BINARY64:
        raise TypeError("binary64 is the native reference; use numpy on .values for its products")
    x, y = context.carriers((a, b))
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[0]:
        raise ValueError(
            f"a has shape {x.shape}, b has shape {y.shape}; give matrices (M, K) and (K, N)"
        )
    shape = (x.shape[0], y.shape[1])
    target = checked_target(context, out, shape)
    chain = "fused" if fused else "kahan" if kahan else "separate"
    watched = wants_marks(context)
    values, flags, marks = _run(context, chain, x, y, watched)
    fold_flags(context, "matmul", flags, values, marks if watched else None)
    context.advance(context.settings)
    return published(context, values, target, out)


def dot(
    x: Array, y: Array, *, context: Context | None = None, fused: bool = False, kahan: bool = False
) -> Array:
    """The inner product of two vectors, every operation rounded; see `rounded_matmul`.

    >>> import fpsim as fp
    >>> half = fp.Context(fp.BINARY16)
    >>> float(dot(half.array([1.0, 2.0]), half.array([3.0, 4.0])))
    11.0
    """
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"x has shape {x.shape}, y has shape {y.shape}; give two equal vectors")
    row, column = x.reshape(1, -1), y.reshape(-1, 1)
    return rounded_matmul(row, column, context=context, fused=fused, kahan=kahan).reshape(())


def _run(
    context: Context, chain: str, a: Carrier, b: Carrier, marks: bool
) -> tuple[Carrier, int, Marks]:
    """Values, flags, and the flags of each element if `marks` are wanted."""
    shape = (a.shape[0], b.shape[1])
    if a.size == 0 or b.size == 0:
        return np.zeros(shape, a.dtype), 0, np.zeros(shape, np.uint8)
    if not marks and chain != "kahan":
        found = _fast(context, chain, a, b) or _around_specials(context, chain, a, b)
        if found:
            return *found, np.zeros((0, 0), np.uint8)
    return GeneralProduct(context, chain, a, b, marks).run()


def _fast(context: Context, chain: str, a: Carrier, b: Carrier) -> tuple[Carrier, int] | None:
    bits = None
    if isinstance(context.source, Philox) and context.rounding.stochastic:
        bits = Bits(context.source.seed, context.operation)
    return run_macs(context.settings, chain == "fused", a, b, bits, context.flags)


def _around_specials(
    context: Context, chain: str, a: Carrier, b: Carrier
) -> tuple[Carrier, int] | None:
    """Rows and columns with infinities or NaN by the general kernel, the rest by a fast one."""
    rows = np.flatnonzero(~np.isfinite(a).all(axis=1))
    columns = np.flatnonzero(~np.isfinite(b).all(axis=0))
    bad = rows.size / len(a) + columns.size / b.shape[1]
    if not 0 < bad <= _MOST_SPECIAL:
        return None
    x, y = a.copy(), b.copy()
    x[rows], y[:, columns] = 0, 0
    clean = _fast(context, chain, x, y)
    if clean is None:
        return None
    values, flags = clean
    general = GeneralProduct(context, chain, a, b, marks=False)
    flags |= general.rows(rows, values)
    flags |= general.columns(columns, values)
    return values, flags
