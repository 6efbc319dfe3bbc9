"""Operands in numbers of 16 bits, for processors that compute with them.

A product reads the left one twice in 32 bits: the processor spreads those over a register as it
loads them, while 16 bits take another step.
"""

from __future__ import annotations

from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.memory import load_float, pointer, splat_item, store_float
from fpsim.kernels.lanes.vectors import as_bits

__all__ = ["STEP", "put_halves"]

#: Numbers at a time; arrays have room for whole multiples.
STEP = 16


@compiled
def put_halves(x, like, codes):
    """codes (n,) uint16 of x (n,) binary32, all of them in binary16; n a multiple of 16.

    `like` (1,) uint32 says how wide the lanes are.
    """
    none = splat_item(like, 0)
    source, target = pointer(x), pointer(codes)
    for i in range(0, x.shape[0], STEP):
        store_float(target, i, as_bits(load_float(source, i, none)))
    return 0
