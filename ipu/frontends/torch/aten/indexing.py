"""Gathering and adding by index: duplicates are added in binary32 in index order, rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ipu.frontends.arrays.rows import add_rows
from ipu.frontends.torch.aten.table import Call, aten

__all__: list[str] = []

_ONCE = "binary32 in index order, once at the end"
#: Reductions that choose one of the numbers.
_SELECTING = ("amax", "amin")


@aten("embedding_dense_backward.default", rounding=_ONCE)
def _embedding_backward(
    call: Call, gradient: Any, indices: Any, n: int, padding: int, scaled: bool
) -> Any:
    if scaled:
        return NotImplemented
    g = call.array(gradient)
    rows = indices.numpy().reshape(-1)
    values = g.carrier.reshape(rows.size, -1)
    kept = rows != padding
    base = call.device.zeros((n, values.shape[1]), g.format)
    return call.result(add_rows(call.device, base, rows[kept], g.like(values[kept])))


@aten("index_put.default", "_unsafe_index_put.default", rounding=f"{_ONCE} where it accumulates")
def _index_put(call: Call, x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    # Positions of the elements that the indices mean, as torch finds them.
    places = np.arange(x.numel()).reshape(x.shape)
    chosen = tuple(slice(None) if i is None else i.numpy() for i in indices)
    at = places[chosen]
    a, v = call.arrays(x, values)
    spread = np.broadcast_to(v.carrier, at.shape).reshape(-1)
    flat = a.like(a.carrier.reshape(-1))
    if accumulate:
        total = add_rows(call.device, flat, at.reshape(-1), v.like(spread))
    else:
        total = flat.like(flat.carrier.copy())
        total.carrier[at.reshape(-1)] = spread
    return call.result(total.reshape(a.shape))


@aten("scatter_add.default", rounding=_ONCE)
def _scatter_add(call: Call, x: Any, dim: int, index: Any, source: Any) -> Any:
    if not x.ndim or not index.numel():
        return NotImplemented
    a, v = call.arrays(x, source)
    where = list(np.indices(tuple(index.shape)))
    values = v.carrier[tuple(where)]
    where[dim % x.ndim] = index.numpy()
    at = np.ravel_multi_index(tuple(where), a.shape).reshape(-1)
    flat = a.like(a.carrier.reshape(-1))
    total = add_rows(call.device, flat, at, v.like(values.reshape(-1)))
    return call.result(total.reshape(a.shape))


@aten("index_add.default", rounding=f"the product with alpha; then {_ONCE}")
def _index_add(call: Call, x: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Any:
    if not x.ndim or index.ndim != 1 or source.ndim != x.ndim:
        return NotImplemented
    a, v = call.arrays(x, source)
    if alpha != 1:
        v = call.device.multiply(v, call.constant(alpha, v.format))
    base, values = (b.like(np.moveaxis(b.carrier, dim, 0)) for b in (a, v))
    total = add_rows(call.device, base, index.numpy(), values)
    return call.result(total.like(np.moveaxis(total.carrier, 0, dim)))


def _selecting(overload: Any) -> Any:
    """A handler that chooses the largest or the smallest number of each place."""

    def handler(
        call: Call, x: Any, dim: int, index: Any, source: Any, reduce: str, *,
        include_self: bool = True,
    ) -> Any:  # fmt: skip
        if reduce not in _SELECTING:
            return NotImplemented
        arrays = call.arrays(x, source)
        base, values = (torch.from_numpy(np.array(a.carrier)) for a in arrays)
        chosen = overload(base, dim, index, values, reduce, include_self=include_self)
        return call.result(arrays[0].like(chosen.numpy()))

    return handler


for _overload in (torch.ops.aten.scatter_reduce.two, torch.ops.aten.index_reduce.default):
    _name = f"{_overload._schema.name.partition('::')[2]}.{_overload._overloadname}"
    aten(_name, rounding="none of a maximum or minimum")(_selecting(_overload))
