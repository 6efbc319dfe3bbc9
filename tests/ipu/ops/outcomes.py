"""What an operation on halves gives, for laws over shapes: codes, flags, status, or a trap.

Operands are codes of binary16: random numbers, and hard ones among them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from fpsim import BINARY16, BINARY32
from fpsim.array import Array
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.state.processor import usual_arithmetic
from ipu.machine import Device
from ipu.machine.control import FpCtl

__all__ = ["Outcome", "of_row", "operands", "outcome", "shapes"]

#: An axis may be long enough that its sum is spread.
shapes = st.one_of(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.tuples(st.integers(1, 3), st.integers(60, 200)), st.tuples(st.integers(60, 200)),
).map(tuple)

#: Zeros, subnormal and smallest numbers, 1, the largest number, infinities, NaNs (one signals).
HARD = np.array(
    [0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7D01],
    np.uint16,
)


class Outcome(NamedTuple):
    """Codes of each result, NaNs as one; $FP_STS; flags of binary16 and of binary32.

    None for all of it: a trap came.
    """

    codes: list[list[int]]
    shapes: list[tuple[int, ...]]
    status: int
    flags: tuple[int, int]


def operands(seed, *shapes):
    """Codes; of every third seed one element in four is a hard one, of every second large."""
    random = np.random.default_rng(seed)
    scale = 300.0 if seed % 2 else 1.0
    results = []
    for shape in shapes:
        codes = (scale * random.normal(size=shape)).astype(np.float16).view(np.uint16)
        if seed % 3 == 0:
            codes = np.where(random.random(shape) < 0.25, random.choice(HARD, shape), codes)
        results.append(np.asarray(codes, np.uint16))
    return results


def outcome(device, results):
    """Of results, ndarrays of halves or arrays, that this device has computed."""
    codes = []
    for x in results:
        values = x.carrier if isinstance(x, Array) else np.asarray(x, np.float32)
        patterns = to_codes(np.ascontiguousarray(values), BINARY16).astype(int)
        codes.append(np.where(np.isnan(values), -1, patterns).reshape(-1).tolist())
    flags = tuple(int(device.context(fmt).flags) for fmt in (BINARY16, BINARY32))
    return Outcome(codes, [tuple(x.shape) for x in results], device.status_word, flags)


@usual_arithmetic
def of_row(compute, codes, *, traps=False, **choices):
    """Of compute(device, *arrays) on a device of its own; None: it trapped."""
    device = Device(control=FpCtl(inv=traps, div0=traps, oflo=traps), **choices)
    context = device.context(BINARY16)
    try:
        results = compute(device, *(Array(from_codes(c, BINARY16), context) for c in codes))
    except FloatingPointError:
        return None
    return outcome(device, results)
