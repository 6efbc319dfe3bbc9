"""Hadamard transforms of groups of 16 numbers and more, in binary32.

Stage by stage the partner of a number is 1, 2, 4, … places away: within a vector lanes change
places, from 16 on whole vectors are partners.

Source    `fpsim.records.transforms`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.arithmetic import plus
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load_float, pointer, store_float
from fpsim.kernels.lanes.vectors import (
    F32,
    VECTOR_WIDTH,
    as_bits,
    as_float,
    infinity_like,
    iota,
    quiet_like,
    select,
    splat,
    unary,
)

__all__ = ["hadamard"]


def _exchange(distance: int) -> Any:
    """Lanes that are so far apart in each other's place."""

    def build(builder: Any, value: Any, a: Any, result: Any) -> Any:
        places = [i ^ distance for i in range(a.n)]
        order = ir.Constant(ir.VectorType(ir.IntType(32), a.n), places)
        return builder.shuffle_vector(value, ir.Constant(a.vector, ir.Undefined), order)

    return unary(lambda a: a, build)


_EXCHANGES = {distance: _exchange(distance) for distance in (1, 2, 4, 8)}


def _stages(vectors):
    """All sums and differences."""
    lanes = iota(as_bits(vectors[0]))
    for distance, exchange in _EXCHANGES.items():
        upper = (lanes & distance) != 0
        vectors = [
            as_float(select(upper, as_bits(exchange(v) - v), as_bits(v + exchange(v))))
            for v in vectors
        ]
    distance = 1
    while distance < len(vectors):
        pairs = [vectors[i : i + 2 * distance] for i in range(0, len(vectors), 2 * distance)]
        vectors = [
            v
            for pair in pairs
            for half in (
                [x + y for x, y in zip(pair[:distance], pair[distance:], strict=True)],
                [x - y for x, y in zip(pair[:distance], pair[distance:], strict=True)],
            )
            for v in half
        ]
        distance *= 2
    return vectors


@formula
def _group(vectors, short, x, signs, at, zero, factor, out):
    """One group from x[at] on."""
    like = factor
    parts = [
        load_float(x, plus(at, VECTOR_WIDTH * i), like)
        * load_float(signs, plus(zero, VECTOR_WIDTH * i), like)
        for i in range(vectors)
    ]
    for i, v in enumerate(_stages(parts)):
        bits = as_bits(v * factor)
        size = bits & 0x7FFFFFFF
        is_nan = size > infinity_like(bits)
        if short:
            bits = (bits + ((bits >> 16) & 1) + 0x7FFF) & 0xFFFF0000
        bits = select(is_nan, infinity_like(bits) | quiet_like(bits), bits)
        store_float(out, plus(at, VECTOR_WIDTH * i), bits)
    return at


@cache
def hadamard(vectors: int, short: bool) -> Any:
    """loop(x, signs, factor, out, begin, end): groups of so many vectors, from begin to end - 1.

    short   results are rounded to bfloat16, to nearest even.
    """
    VECTORS, SHORT = vectors, short

    @compiled
    def loop(x, signs, factor, out, begin, end):
        scale = splat(np.float32(factor), F32)
        px, ps, po = pointer(x), pointer(signs), pointer(out)
        for group in range(begin, end):
            _group(VECTORS, SHORT, px, ps, group * VECTORS * VECTOR_WIDTH, 0 * group, scale, po)
        return 0

    return loop
