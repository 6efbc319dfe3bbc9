"""Values of codes and of scales, by tables: exactly."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.codes import from_codes
from fpsim.records.blocks import Block
from fpsim.records.formats import Format

__all__ = ["values_of_elements", "values_of_scales"]


@lru_cache(maxsize=256)
def _elements(block: Block) -> NDArray[np.float32]:
    """Values of every byte of codes: one, or two where a byte holds two codes (256, 2)."""
    fmt = block.element
    if block.integers:
        table = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32)
        return table * np.float32(fmt.smallest_subnormal)
    codes = np.arange(256) % fmt.n_codes  # of six bits the upper two are not looked at
    table = from_codes(codes.astype(np.uint8), fmt)
    if not block.packed:
        return table
    both = np.arange(256)
    return np.stack([table[both & 15], table[both >> 4]], axis=1)


@lru_cache(maxsize=256)
def _scales(block: Block) -> NDArray[np.float64]:
    """Values of every byte of a scale; the sign bit of what has none is not looked at."""
    scale = block.scale
    assert not isinstance(scale, Format)
    return np.array([scale.decode(code % scale.n_codes) for code in range(256)])


def values_of_elements(codes: NDArray[np.uint8], block: Block) -> NDArray[np.float32]:
    """Values of elements without their scales; (rows, bytes) becomes (rows, columns)."""
    if not block.packed:
        return np.take(_elements(block), codes)
    pairs = _elements(block).view(np.uint64)[:, 0]
    return np.take(pairs, np.ascontiguousarray(codes)).view(np.float32)


def values_of_scales(stored: NDArray[Any], block: Block) -> NDArray[np.float64]:
    """Values of scales, without that of the tensor."""
    if isinstance(block.scale, Format):
        return stored.astype(np.float64)
    values: NDArray[np.float64] = _scales(block)[stored]
    return values
