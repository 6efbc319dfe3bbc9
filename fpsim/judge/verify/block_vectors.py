"""Test vectors of block-scaled formats: a block of numbers, its scale and its codes, by the oracle.

Magnitudes lie about powers of two and about ties of the element's grid, beside zeros, subnormal
numbers, and now and then an infinity or NaN.
"""

from __future__ import annotations

import random

import numpy as np

from fpsim.judge.oracle.blocks import block_scale, element_code
from fpsim.judge.verify.vectors import Row, Vectors
from fpsim.records.blocks import Block
from fpsim.records.formats import Format
from fpsim.records.rounding import Rounding

__all__ = ["of_block"]

#: Elements of a block in a row of a file, at most.
_MOST = 64

_SPECIAL = (0x7F800000, 0x7FC00000, 0x00000000, 0x00000001, 0x80000000, 0x7F7FFFFF)


def of_block(block: Block, rounding: Rounding, count: int, seed: int) -> Vectors:
    """Rows of a block's binary32 numbers, the tensor's largest magnitude where the format has a
    scale of the tensor, the stored scale (a code, or binary32), and the codes of the elements.

    Raises    ValueError for blocks of more than 64 numbers, and for random digits.

    >>> from fpsim.records.blocks import find_block
    >>> from fpsim.records.rounding import RNE
    >>> of_block(find_block("mxfp4"), RNE, 1, 0).columns[-1]
    ('q31', 4)
    """
    if block.elements is None or block.rows is None or block.elements * block.rows > _MOST:
        raise ValueError(
            f"block={block.name} has more than {_MOST} numbers under a scale; its elements are "
            f"{block.element}: give that format, or a block of at most {_MOST}"
        )
    if rounding.stochastic:
        raise ValueError(
            f"mode={rounding!r} takes random bits for each element; give a deterministic one"
        )
    n, draw = block.elements * block.rows, random.Random(seed)
    rows = [_row(block, rounding, _numbers(block, n, i, draw), draw) for i in range(count)]
    tensor = [("tensor", 32)] if block.tensor_scale is not None else []
    stored = ("scale", block.scale.bits)
    columns = [*((f"x{i}", 32) for i in range(n)), *tensor, stored,
               *((f"q{i}", block.element.bits) for i in range(n))]
    return Vectors(f"{block.name} {rounding!r}", tuple(columns), rows)


def _numbers(block: Block, n: int, number: int, draw: random.Random) -> list[int]:
    """Codes of a block's numbers."""
    exponent = draw.randint(-20, 20) if number % 8 else draw.choice((-149, -126, -60, 60, 120))
    span = max(2, block.element.emax - block.element.emin + 2)
    codes = []
    for _ in range(n):
        # Digits of the element and one more are a tie; a unit of binary32 beside it, or not.
        digits = draw.randrange(1 << block.element.precision, 2 << block.element.precision)
        value = np.float32(np.ldexp(digits, exponent - draw.randrange(span)))
        code = int(value.view(np.uint32)) + draw.choice((0, 0, 1, -1))
        codes.append(max(code, 0) | draw.randrange(2) << 31)
    if number % 5 == 0:
        codes[draw.randrange(n)] = draw.choice(_SPECIAL)
    return codes


def _row(block: Block, rounding: Rounding, codes: list[int], draw: random.Random) -> Row:
    values = [float(np.uint32(code).view(np.float32)) for code in codes]
    tensor, of_tensor = 1.0, []
    if block.tensor_scale is not None:
        largest = np.float32(np.abs(np.array(values, np.float32)).max())
        tensor = float(np.float32(largest * np.float32(draw.choice((1, 1, 2, 37)))))
        of_tensor = [int(np.float32(tensor).view(np.uint32))]
    with np.errstate(all="ignore"):
        stored, factor = block_scale(values, block, tensor, rounding)
        elements = [element_code(x, factor, block, rounding) for x in values]
    is_float = isinstance(block.scale, Format)
    scale = int(np.float32(stored).view(np.uint32)) if is_float else int(stored)
    return (*codes, *of_tensor, scale, *elements)
