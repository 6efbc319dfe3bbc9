"""numpy's functions that are several operations: which, and in which order.

Each is written with operations of the context, so that every one of them rounds, raises flags and
has random bits as if the user had called it: the text of a function here is its ruling.

Source    the orders are ours (docs/semantics.md §4); numpy leaves most of them open.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array_moves import Held, arrays_in
from fpsim.elementwise.axes import one_axis
from fpsim.elementwise.folding import processor_fold
from fpsim.state.publish import publish

__all__ = ["as_arrays", "convolve", "correlate", "cross", "cumsum", "diff", "kron", "trapezoid"]


def as_arrays(*operands: Any) -> list[Any]:
    """Arrays of the context of the first one; numbers and ndarrays enter as operands do."""
    context = next(arrays_in(operands)).context
    carriers = context.core.carriers(operands)
    return [
        x if isinstance(x, Held) else context.wrap(carrier)
        for x, carrier in zip(operands, carriers, strict=True)
    ]


def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """s₀ = x₀, sᵢ = fl(sᵢ₋₁ + xᵢ): n − 1 additions along the axis, each an operation."""
    x: Any = a.reshape(-1) if axis is None else a
    axis = 0 if axis is None else one_axis(axis, x.ndim)
    total = _processors_sums(x, axis)
    if total is None:
        context, n = x.context, x.shape[axis]
        sums = [np.take(x, [i], axis) for i in range(n)]
        for i in range(1, n):
            sums[i] = context.add(sums[i - 1], sums[i])
        total = np.concatenate(sums, axis) if n else x.copy()
    if out is None:
        return total
    out[...] = total
    return out


def _processors_sums(x: Any, axis: int) -> Any:
    """The same in one loop, where the processor rounds so; None where operations must run alone."""
    core = x.context.core
    fold = processor_fold("add", core.settings)
    if fold is None or core.watched or core.loops is not None:
        return None
    values, flags = fold.running(x.carrier, axis, start=0.0)
    return core.context.wrap(publish(core, "add", values, flags))


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """xᵢ₊₁ − xᵢ, n times: each time one subtraction of every pair."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
        raise ValueError(f"n={n!r} is not a number of differences; use a whole number from 0 on")
    ends = []
    for end in (prepend, append):
        if end is not None:
            _, end = as_arrays(a, end)
            shape = list(a.shape)
            shape[axis] = 1
            end = np.broadcast_to(end, shape) if end.ndim == 0 else end
        ends.append(end)
    x: Any = np.concatenate([part for part in (ends[0], a, ends[1]) if part is not None], axis)
    for _ in range(int(n)):
        x = x.context.subtract(_along(x, axis, 1, None), _along(x, axis, None, -1))
    return x


def _along(x: Any, axis: int, first: int | None, last: int | None) -> Any:
    index = [slice(None)] * x.ndim
    index[axis] = slice(first, last)
    return x[tuple(index)]


def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    """Sum, in order, of fl(fl(dᵢ · fl(yᵢ₊₁ + yᵢ)) / 2), dᵢ = fl(xᵢ₊₁ − xᵢ) or dx."""
    first = next(arrays_in((y, x)))
    context = first.context
    y, _ = as_arrays(y, first)
    if x is None:
        width: Any = dx
    else:
        x, _ = as_arrays(x, first)
        width = diff(x, axis=axis if x.ndim > 1 else -1)
        if x.ndim == 1 and y.ndim > 1:
            shape = [1] * y.ndim
            shape[axis] = width.shape[0]
            width = width.reshape(shape)
    pairs = context.add(_along(y, axis, 1, None), _along(y, axis, None, -1))
    return context.sum(context.divide(context.multiply(width, pairs), 2), axis)


def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """Σ a_i v_{k−i}, i ascending in the longer operand: a product of vectors for each k.

    The outputs that meet all of the shorter operand are one product; those at either end, where
    fewer terms meet, are one each, from the outside in at the left, from the inside out at the
    right.
    """
    a, v = _vectors(a, v)
    if len(v) > len(a):
        a, v = v, a
    return _sliding(a, v[::-1], mode)


def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """Σ a_{n+k} v_n, in the order of `convolve` of a with v turned round."""
    a, v = _vectors(a, v)
    if len(v) > len(a):
        return _sliding(v, a, mode)[::-1]
    return _sliding(a, v, mode)


def _vectors(a: Any, v: Any) -> tuple[Any, Any]:
    a, v = (np.atleast_1d(x) for x in as_arrays(a, v))
    if a.ndim != 1 or v.ndim != 1 or len(a) == 0 or len(v) == 0:
        raise ValueError(f"shapes {a.shape} and {v.shape}; give two vectors that are not empty")
    return a, v


def _sliding(a: Any, window: Any, mode: str) -> Any:
    """Products of a window that slides over a, which is not shorter."""
    n, m = len(a), len(window)
    outside = {"full": m - 1, "same": m // 2, "valid": 0}
    if mode not in outside:
        raise ValueError(f"mode={mode!r} is not known; use one of {', '.join(outside)}")
    context, left = a.context, outside[mode]
    right = {"full": m - 1, "same": (m - 1) // 2, "valid": 0}[mode]
    parts = [context.dot(a[:k], window[m - k :]).reshape(1) for k in range(m - left, m)]
    # Rows of the matrix are the windows: a view, which the product reads as it lies.
    rows = np.lib.stride_tricks.sliding_window_view(a.carrier, m)
    parts.append(context.matmul(a.like(np.ascontiguousarray(rows)), window))
    ends = range(m - 1, m - right - 1, -1)
    parts += [context.dot(a[n - k :], window[:k]).reshape(1) for k in ends]
    return np.concatenate(parts)


def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    """(a₁b₂ − a₂b₁, a₂b₀ − a₀b₂, a₀b₁ − a₁b₀): all first products, all second, all differences."""
    a, b = as_arrays(a, b)
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = np.moveaxis(a, axisa, -1), np.moveaxis(b, axisb, -1)
    if x.shape[-1:] != (3,) or y.shape[-1:] != (3,):
        raise ValueError(f"shapes {a.shape} and {b.shape}; np.cross takes vectors of three numbers")
    context = a.context
    first = context.multiply(x[..., [1, 2, 0]], y[..., [2, 0, 1]])
    second = context.multiply(x[..., [2, 0, 1]], y[..., [1, 2, 0]])
    return np.moveaxis(context.subtract(first, second), -1, axisc)


def kron(a: Any, b: Any) -> Any:
    """Every number of a times all of b: one product each."""
    a, b = as_arrays(a, b)
    ndim = max(a.ndim, b.ndim)
    x, y = ((1,) * (ndim - side.ndim) + side.shape for side in (a, b))
    rows = [n for extent in x for n in (extent, 1)]
    columns = [n for extent in y for n in (1, extent)]
    product = a.context.multiply(a.reshape(rows), b.reshape(columns))
    return product.reshape([i * j for i, j in zip(x, y, strict=True)])
