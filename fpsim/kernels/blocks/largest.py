"""The largest magnitude of every block along rows, as bits: a NaN is larger than every number."""

from __future__ import annotations

from fpsim.kernels.blocks.lanes import max_lanes
from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.memory import load, pointer
from fpsim.kernels.lanes.vectors import umax

__all__ = ["largest_of_blocks"]


@compiled
def largest_of_blocks(codes, largest, begin, end, width):
    """largest[begin:end] = those of blocks of `width` elements, a multiple of 16.

    codes (blocks * width,) binary32 as uint32.
    """
    x = pointer(codes)
    one_vector = width == 16
    for block in range(begin, end):
        at = block * width
        top = load(x, at) & 0x7FFFFFFF
        if not one_vector:
            for i in range(at + 16, at + width, 16):
                top = umax(top, load(x, i) & 0x7FFFFFFF)
        largest[block] = max_lanes(top)
    return 0
