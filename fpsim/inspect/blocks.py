"""What a block-scaled format does to an array, and to one block, for people.

Source    docs/semantics.md §3; `fpsim.records.blocks`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.block_array import BlockArray
from fpsim.elementwise.blocks.transforms import transformed
from fpsim.quantizers import quantize
from fpsim.records.blocks import Block, BlockFlags, find_block
from fpsim.records.flags import Flags
from fpsim.records.rounding import RNE, Rounding
from fpsim.records.transforms import Transform, find_transform
from fpsim.state.processor import usual_arithmetic

__all__ = ["BlockProfile", "block_profile", "filled", "signal_to_noise"]


@dataclass(frozen=True)
class BlockProfile:
    """Shares of elements and blocks, and how near the values are.

    sqnr       10 log10(|x|^2 / |q - x|^2), in dB.
    gain       <q, x> / <x, x>: below 1 values shrink.
    flushed    elements that became zero, zeros under a zero scale included; clipped likewise.

    >>> p = block_profile([6.0, 0.2, 3.3, 0.0] * 8, "nvfp4")
    >>> isinstance(p, BlockProfile), p.blocks, round(p.sqnr, 1), p.flushed
    (True, 2, 25.6, 0.25)
    """

    block: Block
    elements: int
    blocks: int
    sqnr: float
    gain: float
    flushed: float
    clipped: float
    zero_scales: float
    scale_underflows: float
    scale_overflows: float
    nans: float


@usual_arithmetic
def signal_to_noise(values: ArrayLike, x: ArrayLike) -> tuple[float, float]:
    """Signal-to-noise ratio in dB, and gain, of values beside the numbers that they stand for.

    >>> sqnr, gain = signal_to_noise([0.75, 3.0], [1.0, 3.0])
    >>> round(sqnr, 2), gain
    (22.04, 0.975)
    """
    q, exact = (np.asarray(v, np.float64).reshape(-1) for v in (values, x))
    with np.errstate(all="ignore"):
        power = float(np.sum(exact * exact))
        noise = float(np.sum((q - exact) ** 2))
        gain = float(np.sum(q * exact)) / power if power else math.nan
    if noise == 0:
        return math.inf, gain
    return (10 * math.log10(power / noise) if 0 < power < math.inf and noise < math.inf
            else math.nan), gain


def filled(x: NDArray[Any], block: Block, axis: int = -1) -> NDArray[Any]:
    """x with zeros at the ends of the axes that blocks do not divide.

    >>> from fpsim.records.blocks import find_block
    >>> filled(np.ones((3, 20)), find_block("nvfp4-2d")).shape
    (16, 32)
    """
    x = x.reshape(-1) if x.ndim == 0 else x
    axis %= x.ndim
    across = [i for i in range(x.ndim) if i != axis][-1:]
    if not across and block.rows not in (1, None):
        return filled(x.reshape(1, -1), block)
    sides = {axis: block.elements or (2 if block.packed else 1)}
    if across:
        sides[across[0]] = block.rows or 1
    more = [(0, -size % sides.get(i, 1)) for i, size in enumerate(x.shape)]
    return np.pad(x, more)


@usual_arithmetic
def block_profile(
    array: ArrayLike, block: Block | str, axis: int = -1, rounding: Rounding | str = RNE,
    transform: Transform | str | None = None, seed: int = 0,
) -> BlockProfile:
    """What quantising an array would do; axes that blocks do not divide are filled up with zeros.

    Rounding  as `fpsim.quantize`; a transform is not undone, values are compared with what it gave.

    >>> p = block_profile([6.0, 0.2, 3.3, 0.0] * 8, "mxfp4")
    >>> p.blocks, p.flushed, p.clipped, round(p.sqnr, 1)
    (1, 0.25, 0.0, 25.6)
    """
    record = find_block(block)
    x = np.asarray(array)
    x = np.moveaxis(x, axis, -1) if x.ndim else x.reshape(1)
    x = filled(x.reshape(-1, x.shape[-1]) if x.size else x.reshape(0, 0), record)
    x = np.ascontiguousarray(x, np.float32)
    if transform is not None:
        x = transformed(x, find_transform(transform))
    q = quantize(x, record, -1, rounding, seed=seed, flags=True)
    return _profile(q, x)


def _profile(q: BlockArray, x: NDArray[np.float32]) -> BlockProfile:
    """Counts as shares, of all elements and of all blocks."""
    assert q.block_flags is not None
    assert q.element_flags is not None
    values, counts, blocks = q.values, q.counts(), max(1, q.scales.size)
    sqnr, gain = signal_to_noise(values, x)
    flushed = int(np.count_nonzero((values == 0) & (x != 0)))
    lost = (q.block_flags & BlockFlags.SCALE_UNDERFLOW) != 0
    zero = int(np.count_nonzero((q.scale_values == 0) & lost))
    return BlockProfile(
        q.block, q.size, q.scales.size, sqnr, gain, flushed / max(1, q.size),
        counts[str(Flags.OVERFLOW.name)] / max(1, q.size), zero / blocks,
        *(counts[str(flag.name)] / blocks
          for flag in (BlockFlags.SCALE_UNDERFLOW, BlockFlags.SCALE_OVERFLOW, BlockFlags.NAN)),
    )
