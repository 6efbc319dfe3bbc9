"""quantize: numbers become a BlockArray, by one operation.

Source    docs/semantics.md §2 and §3.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.array import Array
from fpsim.block_array import BlockArray, checked_axis, storage_axes
from fpsim.block_layouts import scales_shape
from fpsim.core import Core
from fpsim.elementwise.blocks.elements import element_settings, words_in_order
from fpsim.elementwise.blocks.quantise import Quantised
from fpsim.elementwise.blocks.quantise import quantise as quantise_matrix
from fpsim.elementwise.blocks.transforms import transformed
from fpsim.elementwise.inputs import floats
from fpsim.kernels.blocks.encode import FLAGS_EACH, FLAGS_NONE, FLAGS_STICKY
from fpsim.records.blocks import Block, find_block
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY32
from fpsim.records.rounding import RNE, Rounding, find_rounding
from fpsim.records.transforms import Transform, find_transform
from fpsim.records.types import Words
from fpsim.state.bits import Replay, check_seed
from fpsim.state.draws import NO_DRAW, Draw, advance, draw
from fpsim.state.processor import usual_arithmetic
from fpsim.state.publish import broadcast_operands, publish

__all__ = ["quantize", "quantize_in"]


@usual_arithmetic
def quantize(
    x: ArrayLike | Array | BlockArray,
    block: Block | str,
    axis: int = -1,
    rounding: Rounding | str = RNE,
    transform: Transform | str | None = None,
    *,
    seed: int = 0,
    random: ArrayLike | None = None,
    flags: bool = False,
    factor: float | None = None,
) -> BlockArray:
    """x as codes under the scales of blocks along an axis.

    block      a `Block` or the name of one; see: fpsim list formats.
    rounding   of the elements; scales follow the block's rule.
    transform  of x before: a Hadamard transform by name ("rht16") or record.
    flags      keep the flags of every element and block.
    factor     what elements are multiplied by, in the place of the rule's; for binary32 scales.

    Shapes    any with at least one axis; blocks divide the axis, and the one before it too where
              they have two dimensions.
    Rounding  x to binary32, to nearest even, where it is wider; the product with the factor of
              its block once to binary32; then once into the element. Stochastic modes take the bits
              of operation 0 of `seed` by the C order of x, or the integers `random`.
    Flags     kept where asked for: INEXACT, UNDERFLOW, OVERFLOW (clipped) and INVALID (no NaN in
              the element) of the elements.
    Raises    ValueError for an axis that is no multiple of the block.
    Source    `fpsim.records.blocks`; docs/semantics.md §3.

    >>> quantize(np.r_[6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, np.zeros(8)], "nvfp4").codes
    array([  7,  34,  68, 102,   0,   0,   0,   0], dtype=uint8)
    """
    mode = find_rounding(rounding)
    key = check_seed(seed)
    record = find_block(block)
    settings = element_settings(record, mode)
    numbers = _binary32(x)
    words = None
    if random is not None:
        if not mode.stochastic:
            raise ValueError(f"random= is for stochastic modes; rounding={mode} has no bits")
        words = Replay([np.asarray(random)]).draw(0, numbers.shape, settings.random_most)
    bits = Draw(np.uint64(key), np.uint64(0), words) if mode.stochastic else NO_DRAW
    level = FLAGS_EACH if _checked(flags) else FLAGS_NONE
    return _quantised(
        numbers, record, axis, mode, transform, bits, level, _checked_factor(factor, record)
    )


def _checked_factor(factor: Any, block: Block) -> np.float32 | None:
    if factor is None:
        return None
    if block.scale != BINARY32:
        raise ValueError(f"factor={factor} goes with binary32 scales; {block} has {block.scale}")
    if isinstance(factor, bool) or not isinstance(factor, (int, float, np.floating)):
        raise TypeError(f"factor={factor!r} is no number; give one above 0")
    with np.errstate(all="ignore"):
        single = np.float32(factor)
        if not 0 < single < math.inf or not np.isfinite(np.float32(1) / single):
            raise ValueError(
                f"factor={factor} is out of range; give a number above 0 that binary32 holds, with "
                "its inverse"
            )
    return single


def quantize_in(
    core: Core, x: ArrayLike | Array, block: Block | str, axis: int,
    rounding: Rounding | str | None, transform: Transform | str | None, *, flags: bool,
    factor: float | None = None, publishes: bool = True,
) -> BlockArray:
    """The same as an operation of a context: its bits, its flags, its rounding where none is named.

    publishes    flags of the elements are raised in the context; else it only draws.

    Raises    FloatingPointTrap before anything is published where an armed flag is raised.
    """
    record = find_block(block)
    mode = core.settings.rounding if rounding is None else find_rounding(rounding)
    numbers = _binary32(x)
    settings = element_settings(record, mode)
    bits = draw(core, numbers.shape, settings)
    level = FLAGS_STICKY if publishes else FLAGS_NONE
    level = FLAGS_EACH if _checked(flags) or (publishes and core.watched) else level
    multiplier = _checked_factor(factor, record)
    result = _quantised(numbers, record, axis, mode, transform, bits, level, multiplier)
    of_elements = result.element_flags
    if of_elements is not None:
        of_elements = of_elements.transpose(np.argsort(result.axes))
    if publishes:
        publish(
            core, "quantize", numbers, int(result.flags or 0),
            of_elements if core.watched else None,
            broadcast_operands([numbers], numbers.shape), in_format=False,
        )
    if mode.stochastic:
        advance(core)
    return result if flags else replace(result, element_flags=None, block_flags=None)


def _checked(flags: Any) -> bool:
    if not isinstance(flags, (bool, np.bool_)):
        raise TypeError(f"flags={flags!r} is not known; use True or False")
    return bool(flags)


def _binary32(x: Any) -> NDArray[np.float32]:
    """Numbers as binary32."""
    if isinstance(x, BlockArray):
        x = x.values
    carrier = x.carrier if isinstance(x, Array) else floats(x)
    if carrier.dtype == np.float32:
        return carrier
    with np.errstate(all="ignore"):
        return carrier.astype(np.float32)


def _quantised(
    x: NDArray[np.float32], block: Block, axis: int, rounding: Rounding,
    transform: Transform | str | None, bits: Draw, flags: int, factor: np.float32 | None = None,
) -> BlockArray:
    if x.ndim == 0:
        raise ValueError("x is one number; blocks lie along an axis, so give a dimension or more")
    axis = checked_axis(axis, x.ndim)
    _check_blocks(x.shape, axis, block)
    axes = storage_axes(x.ndim, axis)
    words: Words | None = None
    if rounding.stochastic and axes != tuple(range(x.ndim)):
        settings = element_settings(block, rounding)
        words = words_in_order(bits, settings, x.size).reshape(x.shape).transpose(axes).reshape(-1)
    stored = np.ascontiguousarray(x.transpose(axes))
    if transform is not None:
        stored = transformed(stored, find_transform(transform))
    matrix = stored.reshape(math.prod(stored.shape[:-1]), stored.shape[-1])
    if block.rows is None and stored.ndim > 2:
        raise ValueError(
            f"block={block} is a whole matrix and x has shape {x.shape}; give two dimensions"
        )
    result = quantise_matrix(matrix, block, rounding, bits, words, flags=flags, factor=factor)
    return _block_array(result, block, x.shape, axis, stored.shape, flags)


def _block_array(
    result: Quantised, block: Block, shape: tuple[int, ...], axis: int, stored: tuple[int, ...],
    flags: int,
) -> BlockArray:
    codes = result.codes.reshape(*stored[:-1], stored[-1] // 2 if block.packed else stored[-1])
    blocks = scales_shape(stored, block)
    scales = result.scales.reshape(blocks)
    of_elements, of_blocks = result.element_flags, result.block_flags
    return BlockArray(
        codes, scales, block, shape, axis,
        float(result.tensor_amax) if block.tensor_scale else None,
        None if flags == FLAGS_NONE else Flags(result.flags),
        None if of_elements is None else of_elements.reshape(stored),
        None if of_blocks is None else of_blocks.reshape(blocks),
    )


def _check_blocks(shape: tuple[int, ...], axis: int, block: Block) -> None:
    """Refuse what blocks do not divide."""
    along = shape[axis]
    if block.elements is not None and along % block.elements:
        whole = -(-along // block.elements) * block.elements
        raise ValueError(
            f"x has {along} numbers along axis={axis}, no multiple of the {block.elements} of a "
            f"block of {block}; fill it up with zeros to {whole}"
        )
    if block.packed and along % 2:
        raise ValueError(
            f"x has {along} numbers along axis={axis}; codes of {block.element} share a byte in "
            "pairs, so give an even number"
        )
    if block.rows == 1 or block.rows is None:
        return
    if len(shape) < 2:
        raise ValueError(
            f"block={block} has rows and columns and x has shape {shape}; give two dimensions"
        )
    across = [size for i, size in enumerate(shape) if i != axis][-1]
    if across % block.rows:
        raise ValueError(
            f"x has {across} rows across axis={axis}, no multiple of the {block.rows} of a block "
            f"of {block}; fill them up with zeros to {-(-across // block.rows) * block.rows}"
        )
