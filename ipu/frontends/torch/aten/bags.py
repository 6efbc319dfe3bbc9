"""Bags of embeddings: rows are added in binary32 in index order, rounded once.

Which row belongs to which bag is a matter of integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fpsim.records.formats import BINARY32
from ipu import ops
from ipu.frontends.torch.aten.table import Call, aten

__all__: list[str] = []

_SUM, _MEAN, _MAX = 0, 1, 2
_BAGS = (ops.embedding_bag, ops.embedding_bag_max)


@aten("_embedding_bag.default", "_embedding_bag_forward_only.default", of=_BAGS)
def _embedding_bag(
    call: Call, weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor,
    scaled: bool = False, mode: int = _SUM, sparse: bool = False,
    by_sample: torch.Tensor | None = None, last: bool = False, padding: int = -1,
) -> Any:
    if sparse or not indices.numel():
        return NotImplemented
    device, w = call.device, call.array(weight)
    # What torch gives besides the sums is integers, which follow from the indices alone.
    plain = torch.zeros(weight.shape)
    selected, bag_of, sizes, largest = torch.ops.aten._embedding_bag.default(
        plain, indices, offsets, False, mode, False, None, last, padding
    )
    bags, rows = _bags(indices, offsets, last)
    real = rows != padding
    bags, rows, count = bags[real], rows[real], len(selected)
    if mode == _MAX:
        result, saved = ops.embedding_bag_max.forward(device, w, rows=rows, bags=bags, count=count)
        sources = torch.from_numpy(saved[1]).to(largest.dtype)
        return call.result(result), bag_of, sizes, sources
    factors = None
    if by_sample is not None:
        read = call.memory.read(by_sample, BINARY32)
        factors = read.like(read.carrier[real])
    total = ops.embedding_bag.value(
        device, w, rows=rows, bags=bags, count=count, mean=mode == _MEAN, factors=factors
    )
    return call.result(total), bag_of, sizes, largest


def _bags(indices: Any, offsets: Any, last: bool) -> tuple[NDArray[Any], Any]:
    """The bag of each index, and the indices."""
    starts = offsets.numpy()[:-1] if last else offsets.numpy()
    rows = indices.numpy()
    return np.searchsorted(starts, np.arange(len(rows)), side="right") - 1, rows


@aten("_embedding_bag_backward.default", of=_BAGS, gradient=True)
def _embedding_bag_backward(
    call: Call, gradient: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor,
    bag_of: torch.Tensor, sizes: torch.Tensor, largest: torch.Tensor, n: int, scaled: bool,
    mode: int, sparse: bool, by_sample: torch.Tensor | None, padding: int = -1,
) -> Any:
    if scaled or sparse or not indices.numel():
        return NotImplemented
    device, g = call.device, call.array(gradient)
    shape = (n, gradient.shape[1])
    if mode == _MAX:
        saved = (shape, largest.numpy(), sizes.numpy() > 0)
        return call.result(ops.embedding_bag_max.pull(0, device, g, saved))
    bags, rows = _bags(indices, offsets[: len(gradient)], last=False)
    real = rows != padding
    factors = None
    if by_sample is not None:
        read = call.memory.read(by_sample, BINARY32)
        factors = read.like(read.carrier[real])
    slope = ops.embedding_bag.pull(
        0, device, g, (shape,), rows=rows[real], bags=bags[real], count=len(gradient),
        mean=mode == _MEAN, factors=factors,
    )
    return call.result(slope)
