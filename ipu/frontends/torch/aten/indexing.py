"""Gathering and adding by index: duplicates are added in binary32 in index order, rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch

from fpsim.array import Array
from ipu import ops
from ipu.frontends.torch.aten.table import Call, aten

__all__: list[str] = []

#: Reductions that choose one of the numbers.
_SELECTING = {"amax": ops.scatter_max, "amin": ops.scatter_min}
#: Data types of indices that count rows.
_INTEGERS = frozenset({torch.int64, torch.int32})


@aten("embedding_dense_backward.default", of=ops.gather, gradient=True)
def _embedding_backward(
    call: Call, gradient: torch.Tensor, indices: torch.Tensor, n: int, padding: int, scaled: bool
) -> Any:
    if scaled:
        return NotImplemented
    g, width = call.array(gradient), gradient.shape[-1]
    saved = ((n, width),)
    return call.result(
        ops.gather.pull(0, call.device, g, saved, rows=indices.numpy(), padding=padding)
    )


def _rows_of_first_axis(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    """The rows of x that indices mean, if they are whole rows in one line; else None.

    >>> _rows_of_first_axis(torch.ones(3, 4), [torch.tensor([2, -3])]).tolist()
    [2, 0]
    """
    first, *others = indices
    if first is None or first.ndim != 1 or first.dtype not in _INTEGERS:
        return None
    if any(index is not None for index in others):
        return None
    rows, n = first.numpy(), len(x)
    return rows % n if np.all((rows >= -n) & (rows < n)) else None


@aten(
    "index_put.default", "_unsafe_index_put.default", of=ops.scatter_add,
    rounding=f"{ops.scatter_add.rounding} where it accumulates",
)
def _index_put(
    call: Call, x: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool = False
) -> Any:
    rows = _rows_of_first_axis(x, indices) if accumulate else None
    if rows is not None:
        a, v = call.arrays(x, values)
        terms = v.like(np.broadcast_to(v.carrier, (len(rows), *a.shape[1:])))
        return call.result(ops.scatter_add.value(call.device, a, terms, rows=rows))
    # Positions of the elements that the indices mean, as torch finds them.
    places = np.arange(x.numel()).reshape(x.shape)
    index = tuple(slice(None) if i is None else i.numpy() for i in indices)
    at = places[index]
    a, v = call.arrays(x, values)
    spread = np.broadcast_to(v.carrier, at.shape).reshape(-1)
    flat = a.like(a.carrier.reshape(-1))
    if accumulate:
        total = ops.scatter_add.value(call.device, flat, v.like(spread), rows=at.reshape(-1))
    else:
        total = flat.like(flat.carrier.copy())
        total.carrier[at.reshape(-1)] = spread
    return call.result(total.reshape(a.shape))


def _elements(x: Any, dim: int, index: Any, base: Array, source: Array) -> tuple[Any, Array]:
    """Numbers of the elements of the base that an index along an axis means, and their values."""
    axis, at = dim % x.ndim, index.numpy()
    values = source.carrier[tuple(slice(n) for n in at.shape)].reshape(-1)
    steps = [prod(base.shape[a + 1 :]) for a in range(x.ndim)]
    places = at * steps[axis]
    for a, n in enumerate(at.shape):
        if a != axis:
            aligned = [1] * a + [n] + [1] * (x.ndim - a - 1)
            places += (np.arange(n) * steps[a]).reshape(aligned)
    return places.reshape(-1), source.like(values)


def _whole_rows(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> torch.Tensor | None:
    """The index of each row, if one number that is repeated tells where all of it goes; else None.

    >>> rows = torch.tensor([2, 0])[:, None].expand(2, 4)
    >>> _whole_rows(torch.ones(3, 4), 0, rows, torch.ones(2, 4))
    tensor([2, 0])
    """
    if dim % x.ndim or not x.shape[1:] == index.shape[1:] == source.shape[1:]:
        return None
    others = zip(x.shape[1:], index.stride()[1:], strict=True)
    is_repeated = all(n == 1 or by == 0 for n, by in others)
    return index[(slice(None), *[0] * (x.ndim - 1))] if is_repeated else None


@aten("scatter_add.default", of=ops.scatter_add)
def _scatter_add(
    call: Call, x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> Any:
    if not x.ndim or not index.numel():
        return NotImplemented
    a, v = call.arrays(x, source)
    rows = _whole_rows(x, dim, index, source)
    if rows is not None:
        terms = v.like(v.carrier[: len(rows)])
        return call.result(ops.scatter_add.value(call.device, a, terms, rows=rows.numpy()))
    at, values = _elements(x, dim, index, a, v)
    total = ops.scatter_add.value(call.device, a.reshape(-1), values, rows=at)
    return call.result(total.reshape(a.shape))


def _first_axis(x: Array, dim: int) -> Array:
    return x.like(np.moveaxis(x.carrier, dim, 0))


def _rows(
    call: Call, row: Any, dim: int, index: Any, base: Array, values: Array, **how: Any
) -> Any:
    """A scattering of rows along an axis."""
    bases, terms = _first_axis(base, dim), _first_axis(values, dim)
    total = row.value(call.device, bases, terms, rows=index.numpy(), **how)
    return call.result(total.like(np.moveaxis(total.carrier, 0, dim)))


@aten("index_add.default", of=(ops.scatter_add, ops.scale),
      rounding=f"the product with alpha; then {ops.scatter_add.rounding}")
def _index_add(
    call: Call, x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *,
    alpha: float = 1,
) -> Any:
    if not x.ndim or index.ndim != 1 or source.ndim != x.ndim:
        return NotImplemented
    a, v = call.arrays(x, source)
    if alpha != 1:
        v = ops.scale.value(call.device, v, factor=call.constant(alpha, v.format))
    return _rows(call, ops.scatter_add, dim, index, a, v)


@aten("scatter_reduce.two", of=(ops.scatter_max, ops.scatter_min, ops.scatter_multiply))
def _scatter_reduce(
    call: Call, x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str,
    *, include_self: bool = True,
) -> Any:
    if not x.ndim or not index.numel():
        return NotImplemented
    if reduce == "prod" and include_self:
        a, v = call.arrays(x, source)
        at, values = _elements(x, dim, index, a, v)
        total = ops.scatter_multiply.value(call.device, a.reshape(-1), values, rows=at)
        return call.result(total.reshape(a.shape))
    if reduce not in _SELECTING:
        return NotImplemented
    a, v = call.arrays(x, source)
    at, values = _elements(x, dim, index, a, v)
    row, flat = _SELECTING[reduce], a.reshape(-1)
    total = row.value(call.device, flat, values, rows=at, fresh=not include_self)
    return call.result(total.reshape(a.shape))


@aten("index_reduce.default", of=(ops.scatter_max, ops.scatter_min, ops.scatter_multiply))
def _index_reduce(
    call: Call, x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str,
    *, include_self: bool = True,
) -> Any:
    if not x.ndim or source.ndim != x.ndim:
        return NotImplemented
    if reduce == "prod" and include_self:
        return _rows(call, ops.scatter_multiply, dim, index, *call.arrays(x, source))
    if reduce not in _SELECTING:
        return NotImplemented
    a, v = call.arrays(x, source)
    return _rows(call, _SELECTING[reduce], dim, index, a, v, fresh=not include_self)
