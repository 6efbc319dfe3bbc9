"""Bags of embeddings: rows are added in binary32 in index order, rounded once.

Which row belongs to which bag is a matter of integers, which torch's own operation answers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu.frontends.arrays.rows import add_rows
from ipu.frontends.torch.aten.table import Call, aten

__all__: list[str] = []

_ONCE = "binary32 in index order; a mean times fl(1/n); once at the end"
_SUM, _MEAN, _MAX = 0, 1, 2


def _shares(call: Call, rows: Array, bags: Any, sizes: Any, mode: int) -> Array:
    """Rows of a mean, each times fl(1/n) of its bag, in binary32."""
    if mode != _MEAN:
        return rows
    share = 1 / np.maximum(sizes[bags], 1)
    return call.device.multiply(rows, call.device.from_host(share[:, None], BINARY32))


@aten("_embedding_bag.default", "_embedding_bag_forward_only.default", rounding=_ONCE)
def _embedding_bag(
    call: Call, weight: Any, indices: Any, offsets: Any, scaled: bool = False, mode: int = _SUM,
    sparse: bool = False, by_sample: Any = None, last: bool = False, padding: int = -1,
) -> Any:  # fmt: skip
    if sparse or not indices.numel():
        return NotImplemented
    device, w = call.device, call.array(weight)
    held = torch.from_numpy(np.array(w.carrier, order="C"))
    selected, bag_of, sizes, largest = torch.ops.aten._embedding_bag.default(
        held, indices, offsets, False, mode, False, None, last, padding
    )
    if mode == _MAX:
        return call.result(w.like(selected.numpy())), bag_of, sizes, largest
    bags, chosen = _bags(indices, offsets, last)
    kept = chosen != padding
    wide = call.wide(w)
    rows = wide.like(wide.carrier[chosen])
    if by_sample is not None:
        factors = call.memory.read(by_sample, BINARY32)
        rows = device.multiply(rows, factors.reshape(-1, 1))
    base = device.zeros(tuple(selected.shape), BINARY32)
    total = add_rows(device, base, bags[kept], rows.like(rows.carrier[kept]))
    if mode == _MEAN:
        n = np.bincount(bags[kept], minlength=len(base))[:, None]
        total = device.multiply(total, device.from_host(1 / np.maximum(n, 1), BINARY32))
    return call.rounded(total, w.format), bag_of, sizes, largest


def _bags(indices: Any, offsets: Any, last: bool) -> Any:
    """The bag of each index, and the indices."""
    starts = offsets.numpy()[:-1] if last else offsets.numpy()
    chosen = indices.numpy()
    return np.searchsorted(starts, np.arange(len(chosen)), side="right") - 1, chosen


@aten("_embedding_bag_backward.default", rounding=_ONCE)
def _embedding_bag_backward(
    call: Call, gradient: Any, indices: Any, offsets: Any, bag_of: Any, sizes: Any, largest: Any,
    n: int, scaled: bool, mode: int, sparse: bool, by_sample: Any, padding: int = -1,
) -> Any:  # fmt: skip
    if scaled or sparse or not indices.numel():
        return NotImplemented
    device, g = call.device, call.array(gradient)
    wide = call.wide(g)
    base = device.zeros((n, gradient.shape[1]), BINARY32)
    if mode == _MAX:
        places = largest.numpy() * gradient.shape[1] + np.arange(gradient.shape[1])
        filled = sizes.numpy() > 0
        flat = add_rows(
            device, base.reshape(-1), places[filled].reshape(-1),
            wide.like(wide.carrier[filled].reshape(-1)),
        )  # fmt: skip
        return call.rounded(flat.reshape(base.shape), g.format)
    bags, chosen = _bags(indices, offsets[: len(gradient)], last=False)
    kept = chosen != padding
    bags, chosen = bags[kept], chosen[kept]
    counts = np.bincount(bags, minlength=len(gradient))
    rows = _shares(call, wide.like(wide.carrier[bags]), bags, counts, mode)
    if by_sample is not None:
        factors = call.memory.read(by_sample, BINARY32)
        rows = device.multiply(rows, factors.like(factors.carrier[kept]).reshape(-1, 1))
    return call.rounded(add_rows(device, base, chosen, rows), g.format)
