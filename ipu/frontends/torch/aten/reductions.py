"""Sums, means, variances, norms, running sums: binary32, rounded once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from fpsim.array import Array
from fpsim.elementwise.order import largest_along
from ipu.frontends.torch.aten.table import Call, aten
from ipu.ops.rules import count

__all__ = ["axes_of"]

_ONCE = "binary32, once at the end"
_EACH = "binary32 in index order, each result once"


def axes_of(x: Array, dim: Any) -> tuple[int, ...]:
    """Axes from an argument `dim`; none of them means all."""
    if dim is None or dim == []:
        return tuple(range(x.ndim))
    dims = [dim] if isinstance(dim, int) else dim
    n = max(x.ndim, 1)
    if any(not -n <= d < n for d in dims):
        raise IndexError(f"dim={dim} is out of range for {x.ndim} dimensions")
    return tuple(sorted(d % x.ndim if x.ndim else 0 for d in dims)) if x.ndim else ()


def _aligned(x: Array, reduced: Array, axes: tuple[int, ...], keepdim: bool) -> Array:
    """A result with axes of length 1, or without these axes."""
    if keepdim:
        return reduced
    return reduced.reshape([n for a, n in enumerate(x.shape) if a not in axes])


def _reduced(
    call: Call, x: Any, dim: Any, keepdim: bool, dtype: torch.dtype | None, mean: bool
) -> Any:
    if dtype is not None and dtype != x.dtype:
        if not (x.dtype.is_floating_point and dtype.is_floating_point):
            return NotImplemented
        # The sum in the wider type; its result is of that type.
        x = torch.ops.aten._to_copy.default(x, dtype=dtype) if mean else x
    a = call.array(x)
    axes = axes_of(a, dim)
    n = count(a.shape, axes)
    if a.ndim == 0:  # one number is its own sum
        return call.rounded(a.like(a.carrier.copy()), a.format, dtype)
    if n == 0 or not axes:
        return NotImplemented
    if call.keeps_wide(0 if len(axes) == a.ndim and not keepdim else a.ndim, dtype):
        a = call.wide(a)
    total = call.device.reduce_sum(a, axes, scale=1 / n if mean else 1.0)
    return call.result(_aligned(a, total, axes, keepdim), dtype)


@aten("sum.default", "sum.dim_IntList", rounding=_ONCE)
def _sum(
    call: Call, x: Any, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Any:
    return _reduced(call, x, dim, keepdim, dtype, mean=False)


@aten("mean.default", "mean.dim", rounding=f"{_ONCE}, times fl(1/n) in binary32")
def _mean(
    call: Call, x: Any, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Any:
    return _reduced(call, x, dim, keepdim, dtype, mean=True)


# Variance -----------------------------------------------------------------------------------


def _moments(call: Call, a: Array, axes: tuple[int, ...], correction: float) -> Any:
    """Mean and variance in binary32, the axes kept."""
    device, wide, n = call.device, call.wide(a), count(a.shape, axes)
    mean = device.reduce_sum(wide, axes, scale=1 / n)
    centred = device.subtract(wide, mean)
    squares = device.multiply(centred, centred)
    return mean, device.reduce_sum(squares, axes, scale=1 / (n - correction))


def _spread(call: Call, x: Any, dim: Any, correction: Any, keepdim: bool, root: bool) -> Any:
    a = call.array(x)
    axes, correction = axes_of(a, dim), 1 if correction is None else correction
    if count(a.shape, axes) <= correction or not axes:
        return NotImplemented
    mean, variance = _moments(call, a, axes, correction)
    spread = call.device.sqrt(variance) if root else variance
    aligned = (call.device.cast(_aligned(a, m, axes, keepdim), a.format) for m in (spread, mean))
    return tuple(call.result(m) for m in aligned)


@aten("var.correction", rounding=_ONCE)
def _var(
    call: Call, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    both = _spread(call, x, dim, correction, keepdim, root=False)
    return both if both is NotImplemented else both[0]


@aten("std.correction", rounding=f"{_ONCE}, the root too")
def _std(
    call: Call, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    both = _spread(call, x, dim, correction, keepdim, root=True)
    return both if both is NotImplemented else both[0]


@aten("var_mean.correction", rounding=_ONCE)
def _var_mean(
    call: Call, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    return _spread(call, x, dim, correction, keepdim, root=False)


@aten("std_mean.correction", rounding=f"{_ONCE}, the root too")
def _std_mean(
    call: Call, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    return _spread(call, x, dim, correction, keepdim, root=True)


@aten(
    "linalg_vector_norm.default",
    rounding=f"{_ONCE}, of squares and the root (order 2), of sizes (order 1); none (infinity)",
)
def _vector_norm(
    call: Call, x: Any, order: float = 2, dim: Any = None, keepdim: bool = False, *,
    dtype: torch.dtype | None = None,
) -> Any:
    if order not in (1, 2, math.inf) or dtype not in (None, x.dtype) or not (x.numel() and x.ndim):
        return NotImplemented
    a = call.array(x)
    axes = axes_of(a, dim)
    sizes = a.like(np.abs(a.carrier))
    if order == math.inf:
        settings = a.context.settings
        largest, _ = largest_along(sizes.carrier, axes, settings, number_wins=False)
        return call.result(_aligned(a, a.like(largest), axes, keepdim))
    if order == 1:
        if call.keeps_wide(0 if len(axes) == a.ndim and not keepdim else a.ndim):
            sizes = call.wide(sizes)
        return call.result(_aligned(a, call.device.reduce_sum(sizes, axes), axes, keepdim))
    total = call.device.reduce_squares(a, axes)
    return call.loss(_aligned(a, call.device.sqrt(total), axes, keepdim), a.format)


@aten("norm.ScalarOpt_dim", rounding="as linalg_vector_norm")
def _norm(call: Call, x: Any, order: Any, dim: Any, keepdim: bool = False) -> Any:
    return _vector_norm(call, x, 2 if order is None else order, dim, keepdim)


# Running sums ---------------------------------------------------------------------------------


def _scan(call: Call, verb: str, x: Any, dim: int, dtype: torch.dtype | None) -> Any:
    if dtype not in (None, x.dtype) or not x.numel() or not x.ndim:
        return NotImplemented
    a = call.array(x)
    operation = getattr(call.device, verb)
    rows = np.ascontiguousarray(np.moveaxis(call.wide(a).carrier, dim, 0))
    wide = call.wide(a).like(rows)
    results = np.empty_like(rows)
    running: Array = wide[0]
    results[0] = running.carrier
    for i in range(1, len(rows)):
        running = operation(running, wide[i])
        results[i] = running.carrier
    return call.rounded(wide.like(np.moveaxis(results, 0, dim)), a.format)


@aten("cumsum.default", rounding=_EACH)
def _cumsum(call: Call, x: Any, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    return _scan(call, "add", x, dim, dtype)


@aten("cumprod.default", rounding=_EACH)
def _cumprod(call: Call, x: Any, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    return _scan(call, "multiply", x, dim, dtype)
