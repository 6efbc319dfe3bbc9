"""Sums, means, variances, norms, products, running sums: names of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fpsim.array import Array
from ipu import ops
from ipu.frontends.torch.aten.table import Call, aten
from ipu.ops.primitive import Primitive
from ipu.ops.rules import count, read_nan

__all__ = ["axes_of"]


def axes_of(x: Array, dim: Any) -> tuple[int, ...]:
    """Axes from an argument `dim`; none of them means all."""
    if dim is None or dim == []:
        return tuple(range(x.ndim))
    dims = [dim] if isinstance(dim, int) else dim
    n = max(x.ndim, 1)
    if any(not -n <= d < n for d in dims):
        raise IndexError(f"dim={dim} is out of range for {x.ndim} dimensions")
    return tuple(sorted(d % x.ndim if x.ndim else 0 for d in dims)) if x.ndim else ()


def _reduced(
    call: Call, x: Any, dim: Any, keepdim: bool, dtype: torch.dtype | None, mean: bool,
    of_numbers: bool = False,
) -> Any:
    if dtype is not None and dtype != x.dtype:
        if not (x.dtype.is_floating_point and dtype.is_floating_point):
            return NotImplemented
        # The sum in the wider type; its result is of that type.
        x = torch.ops.aten._to_copy.default(x, dtype=dtype) if mean else x
    a = call.array(x)
    if of_numbers and np.isnan(a.carrier).any():
        read_nan(call.device, a.format)
        a = ops.finite.value(call.device, a, nan=0.0, above=math.inf, below=-math.inf)
    axes = axes_of(a, dim)
    n = count(a.shape, axes)
    if a.ndim == 0:  # one number is its own sum
        return call.rounded(a.like(a.carrier.copy()), a.format, dtype)
    if n == 0 or not axes:
        return NotImplemented
    if call.keeps_wide(0 if len(axes) == a.ndim and not keepdim else a.ndim, dtype):
        a = call.wide(a)
    row = ops.reduce_mean if mean else ops.reduce_sum
    return call.result(row.value(call.device, a, axis=axes, keepdims=keepdim), dtype)


@aten("sum.default", "sum.dim_IntList", of=ops.reduce_sum)
def _sum(
    call: Call, x: torch.Tensor, dim: Any = None, keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> Any:
    return _reduced(call, x, dim, keepdim, dtype, mean=False)


@aten("nansum.default", of=(ops.reduce_sum, ops.finite))
def _sum_of_numbers(
    call: Call, x: torch.Tensor, dim: Any = None, keepdim: bool = False, *,
    dtype: torch.dtype | None = None,
) -> Any:
    """NaNs are read, and 0 is added for each."""
    return _reduced(call, x, dim, keepdim, dtype, mean=False, of_numbers=True)


@aten("mean.default", "mean.dim", of=ops.reduce_mean)
def _mean(
    call: Call, x: torch.Tensor, dim: Any = None, keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> Any:
    return _reduced(call, x, dim, keepdim, dtype, mean=True)


# Variance -----------------------------------------------------------------------------------


def _spread(call: Call, x: Any, dim: Any, correction: Any, keepdim: bool, root: bool) -> Any:
    a = call.array(x)
    axes, correction = axes_of(a, dim), 1 if correction is None else correction
    if count(a.shape, axes) <= correction or not axes:
        return NotImplemented
    spread, (mean,) = ops.reduce_variance.forward(
        call.device, a, axis=axes, keepdims=keepdim, correction=correction, root=root
    )
    both = (spread, call.device.cast(mean, a.format))
    return tuple(call.result(m) for m in both)


@aten("var.correction", of=ops.reduce_variance)
def _var(
    call: Call, x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: Any = None,
    keepdim: bool = False,
) -> Any:
    both = _spread(call, x, dim, correction, keepdim, root=False)
    return both if both is NotImplemented else both[0]


@aten("std.correction", of=ops.reduce_variance)
def _std(
    call: Call, x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: Any = None,
    keepdim: bool = False,
) -> Any:
    both = _spread(call, x, dim, correction, keepdim, root=True)
    return both if both is NotImplemented else both[0]


@aten("var_mean.correction", of=ops.reduce_variance)
def _var_mean(
    call: Call, x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: Any = None,
    keepdim: bool = False,
) -> Any:
    return _spread(call, x, dim, correction, keepdim, root=False)


@aten("std_mean.correction", of=ops.reduce_variance)
def _std_mean(
    call: Call, x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: Any = None,
    keepdim: bool = False,
) -> Any:
    return _spread(call, x, dim, correction, keepdim, root=True)


@aten("linalg_vector_norm.default", of=ops.vector_norm)
def _vector_norm(
    call: Call, x: torch.Tensor, order: float = 2, dim: Sequence[int] | None = None,
    keepdim: bool = False, *, dtype: torch.dtype | None = None,
) -> Any:
    if order not in (1, 2, math.inf) or dtype not in (None, x.dtype) or not (x.numel() and x.ndim):
        return NotImplemented
    a = call.array(x)
    axes, fmt = axes_of(a, dim), a.format
    if order == 1 and call.keeps_wide(0 if len(axes) == a.ndim and not keepdim else a.ndim):
        a = call.wide(a)
    norm = ops.vector_norm.value(call.device, a, axis=axes, keepdims=keepdim, order=order)
    return call.loss(norm, fmt) if order == 2 else call.result(norm)


@aten("norm.ScalarOpt_dim", of=ops.vector_norm)
def _norm(
    call: Call, x: torch.Tensor, order: Any, dim: Sequence[int], keepdim: bool = False
) -> Any:
    return _vector_norm(call, x, 2 if order is None else order, dim, keepdim)


# Running sums ---------------------------------------------------------------------------------


def _running(name: str, row: Primitive) -> None:
    @aten(name, of=row)
    def handler(call: Call, x: Any, dim: int, *, dtype: torch.dtype | None = None) -> Any:
        if dtype not in (None, x.dtype) or not x.numel() or not x.ndim:
            return NotImplemented
        return call.result(row.value(call.device, call.array(x), axis=dim))


_running("cumsum.default", ops.cumulative_sum)
_running("cumprod.default", ops.cumulative_product)


# Products -------------------------------------------------------------------------------------


@aten("prod.default", of=ops.reduce_product)
def _prod(call: Call, x: torch.Tensor, *, dtype: torch.dtype | None = None) -> Any:
    return NotImplemented if dtype not in (None, x.dtype) else _product(call, x, None, False)


@aten("prod.dim_int", of=ops.reduce_product)
def _prod_along(
    call: Call, x: torch.Tensor, dim: int, keepdim: bool = False, *,
    dtype: torch.dtype | None = None,
) -> Any:
    return NotImplemented if dtype not in (None, x.dtype) else _product(call, x, dim, keepdim)


def _product(call: Call, x: Any, dim: Any, keepdim: bool) -> Any:
    if not x.numel() or not x.ndim:
        return NotImplemented
    a = call.array(x)
    row, axes = ops.reduce_product, axes_of(a, dim)
    return call.result(row.value(call.device, a, axis=axes, keepdims=keepdim))
