"""Keys and values of attention as a cache in blocks would hold them, where nothing trains.

Torch's scaled_dot_product_attention reads them decoded: once into the format that they had. Blocks
lie along the numbers of a head, so that a token's do not depend on other tokens. Attention that a
program writes out by itself is not seen; a session that saw none at all says so at its end.

Source    docs/block-scaled.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch

from fpsim.block_array import BlockArray
from fpsim.quantizers import quantize
from fpsim.records.blocks import Block, find_block
from ipu.frontends.torch.values import Memory

__all__ = ["caching"]


@contextmanager
def caching(name: str, memory: Memory) -> Iterator[None]:
    """Attention inside reads keys and values from blocks of that name; "" for as they are."""
    if not name:
        yield
        return
    block, functional = find_block(name), torch.nn.functional
    attention, reads = functional.scaled_dot_product_attention, 0

    @wraps(attention)
    def from_cache(query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> Any:
        nonlocal reads
        if not torch.is_grad_enabled():
            reads += 1
            key, value = (_decoded(x, block, memory) for x in (key, value))
        return attention(query, key, value, *rest, **options)

    functional.scaled_dot_product_attention = from_cache
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = attention
    if not reads:
        warnings.warn(
            f"cache={name!r}: no scaled_dot_product_attention ran without gradients, so nothing "
            "was read from blocks; call it under torch.no_grad()", RuntimeWarning, stacklevel=3,
        )


def _decoded(x: torch.Tensor, block: Block, memory: Memory) -> torch.Tensor:
    held = memory.format_of(x)
    elements = block.elements or 1
    if x.shape[-1] % elements:
        raise ValueError(
            f"cache={block}: heads have {x.shape[-1]} numbers, no multiple of the {elements} of a "
            "block; use another block"
        )
    values = x.detach().float().contiguous()
    rows = values.reshape(-1, values.shape[-1]).numpy()
    blocks: BlockArray = quantize(rows, block, axis=1)
    fmt = held or memory.device.context("binary32").format
    array = memory.device.from_host(blocks.values.reshape(tuple(x.shape)), fmt)
    return memory.write(array, x.dtype)
