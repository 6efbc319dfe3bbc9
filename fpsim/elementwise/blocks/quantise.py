"""Numbers as codes under scales: the largest magnitudes, the scales, then the elements.

Source    docs/semantics.md §3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.blocks.elements import (
    Elements,
    element_settings,
    encode_elements,
    words_in_order,
)
from fpsim.elementwise.blocks.scales import (
    Scales,
    alternatives,
    same_scales,
    scales_of,
    tensor_factor,
)
from fpsim.elementwise.blocks.values import values_of_elements, values_of_scales
from fpsim.kernels.blocks.largest import largest_of_blocks
from fpsim.records.blocks import Block
from fpsim.records.rounding import Rounding
from fpsim.records.types import Words
from fpsim.state.draws import Draw
from fpsim.state.threads import run_blocks

__all__ = ["Quantised", "quantise"]

#: Elements below which a second thread costs more than it gives.
_SMALLEST = 1 << 18
#: Lanes of the loops: rows of blocks are filled up with zeros to whole vectors.
_LANES = 16

_ZERO = np.float32(0)


class Quantised(NamedTuple):
    """What a matrix became; rows and columns as given, the axis of blocks last.

    codes           uint8, two of four bits in a byte, the first in the low half.
    scales          codes of the scale's format, or binary32: one for each block.
    tensor_amax     largest magnitude of all; NaN if one is.
    flags           `Flags` of the elements together.
    element_flags   of each; None where they were not asked for.
    block_flags     `BlockFlags` of each block; likewise.
    """

    codes: NDArray[np.uint8]
    scales: NDArray[Any]
    tensor_amax: np.float32
    flags: int
    element_flags: NDArray[np.uint8] | None
    block_flags: NDArray[np.uint8] | None


class _Partition(NamedTuple):
    """Blocks of a matrix: their elements along a row, as in the loops, and rows."""

    width: int
    whole: int
    tall: int
    across: int


def quantise(
    x: NDArray[np.float32], block: Block, rounding: Rounding, draw: Draw,
    words: Words | None, *, flags: int, factor: np.float32 | None = None,
) -> Quantised:
    """A matrix (rows, columns) in C order, whose rows and columns fit the block.

    words   random words of each element in the order of x, R in their top bits; None: those of
            the draw, in that order.
    factor  of every element, in the place of the rule's.
    """
    rows, columns = x.shape
    grid = _grid(x.shape, block)
    settings = element_settings(block, rounding)
    filled = grid.whole != grid.width
    made_here = not filled and draw.first % _LANES == 0 and draw.words is None
    if rounding.stochastic and words is None and not made_here:
        words = words_in_order(draw, settings, x.size)
    if filled:
        x = _filled(x, grid)
        words = None if words is None else _filled(words.reshape(rows, columns), grid)
    largest = _largest(x, grid)
    of_tensor = np.float32(largest.max(initial=0)) if block.tensor_scale else _ZERO

    def elements(scales: Scales) -> Elements:
        return encode_elements(
            x, scales.factors, block, rounding, draw, words, grid.whole, grid.tall, flags=flags
        )

    if block.scale_rule in ("mae46", "mse46"):
        scales = _smaller_error(x, block, largest, of_tensor, grid, elements)
    elif factor is None:
        scales = scales_of(block, largest, of_tensor)
    else:
        scales = same_scales(largest, factor)
    encoded = elements(scales)
    codes, element_flags, block_flags = _cut(encoded, grid, block, rows, columns)
    if block_flags is not None:
        block_flags = block_flags | scales.flags
    return Quantised(
        codes, scales.stored, of_tensor, encoded.flags, element_flags, block_flags
    )


def _grid(shape: tuple[int, int], block: Block) -> _Partition:
    rows, columns = shape
    width = max(1, columns if block.elements is None else block.elements)
    tall = max(1, rows if block.rows is None else block.rows)
    return _Partition(width, -(-width // _LANES) * _LANES, tall, columns // width)


def _filled(x: NDArray[Any], grid: _Partition) -> NDArray[Any]:
    """The same with zeros at the end of every row of a block, up to whole vectors."""
    rows = x.shape[0]
    wide = np.zeros((rows, grid.across, grid.whole), x.dtype)
    wide[..., : grid.width] = x.reshape(rows, grid.across, grid.width)
    return wide.reshape(rows, grid.across * grid.whole)


def _largest(x: NDArray[np.float32], grid: _Partition) -> NDArray[np.float32]:
    """Largest magnitudes of blocks (rows of blocks, blocks)."""
    rows = x.shape[0]
    bits = np.zeros(rows * grid.across, np.uint32)
    flat = x.reshape(-1).view(np.uint32)

    def work(begin: int, end: int) -> int:
        done: int = largest_of_blocks(flat, bits, begin, end, grid.whole)
        return done

    if bits.size:
        run_blocks(work, 0, bits.size, max(1, _SMALLEST // grid.whole))
    if grid.tall > 1:
        bits = bits.reshape(rows // grid.tall, grid.tall, grid.across).max(axis=1, initial=0)
    return bits.view(np.float32).reshape(rows // grid.tall, grid.across)


def _smaller_error(
    x: NDArray[np.float32], block: Block, largest: NDArray[np.float32], of_tensor: np.float32,
    grid: _Partition, elements: Callable[[Scales], Elements],
) -> Scales:
    """Of two scales for each block the one with the smaller error; the first if both are equal."""
    first, second = alternatives(block, largest, of_tensor)
    with np.errstate(all="ignore"):
        of_tensor = np.float32(1) / tensor_factor(block, of_tensor)
        errors = [
            _error(x, block, elements(scales).codes, scales, of_tensor, grid)
            for scales in (first, second)
        ]
        better = errors[1] < errors[0]
    return Scales(
        np.where(better, second.stored, first.stored),
        np.where(better, second.factors, first.factors),
        np.where(better, second.flags, first.flags),
    )


def _error(
    x: NDArray[np.float32], block: Block, codes: NDArray[np.uint8], scales: Scales,
    of_tensor: np.float32, grid: _Partition,
) -> NDArray[np.float32]:
    """Sums of errors, or of their squares, in binary32: half of a row of a block on the other, then
    neighbours; rows one after the other.
    """
    shape = (-1, grid.tall, grid.across, grid.whole)
    values = values_of_elements(codes, block).reshape(shape)
    scale = values_of_scales(scales.stored, block).astype(np.float32) * of_tensor
    error = np.abs(values * scale[:, None, :, None] - x.reshape(shape))
    if block.scale_rule == "mse46":
        error = error * error
    half = grid.whole // 2
    error = error[..., :half] + error[..., half:]
    while error.shape[-1] > 1:
        if error.shape[-1] % 2:
            error = np.concatenate([error, np.zeros((*error.shape[:-1], 1), np.float32)], axis=-1)
        error = error[..., ::2] + error[..., 1::2]
    total = error[:, 0, :, 0]
    for row in range(1, grid.tall):
        total = total + error[:, row, :, 0]
    return total


def _cut(
    encoded: Elements, grid: _Partition, block: Block, rows: int, columns: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8] | None, NDArray[np.uint8] | None]:
    """Codes and flags without what was filled up, and flags of whole blocks."""
    codes, element_flags, of_rows = encoded.codes, encoded.element_flags, encoded.block_flags
    per_byte = 2 if block.packed else 1
    if grid.whole != grid.width:
        wide = (rows, grid.across, grid.whole)
        whole_bytes = -(-grid.width // per_byte)
        codes = codes.reshape(rows, grid.across, grid.whole // per_byte)[..., :whole_bytes]
        codes = np.ascontiguousarray(codes).reshape(rows, grid.across * whole_bytes)
        if element_flags is not None:
            element_flags = element_flags.reshape(wide)[..., : grid.width].reshape(rows, columns)
    if of_rows is not None and grid.tall > 1:
        of_rows = np.bitwise_or.reduce(
            of_rows.reshape(rows // grid.tall, grid.tall, grid.across), axis=1
        )
    return codes, element_flags, of_rows
