"""Formulas of lanes applied to whole arrays, for the tests of kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fpsim.kernels.compiling import INLINE
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load, load_float, store
from fpsim.kernels.lanes.vectors import as_bits, width_of

Codes = NDArray[np.unsignedinteger]


def on_floats(function: Callable[..., Any], *operands: NDArray[np.floating]) -> Codes:
    """Bits of function(x, y, z) on float lanes; the operands are of one type and length.

    The length is a multiple of the lanes of a vector (16 of binary32, 8 of binary64).
    """
    n_operands = len(operands)
    x, y, z = (np.ascontiguousarray(o) for o in (*operands, *[operands[0]] * (3 - n_operands)))

    @formula
    def bits(u, v, w):
        return as_bits(function(*(u, v, w)[:n_operands]))

    @njit(**{**INLINE, "forceinline": False})
    def loop(x, y, z, out):
        none = load(out, 0)
        for i in range(0, out.shape[0], 512 // width_of(none)):
            u, v, w = load_float(x, i, none), load_float(y, i, none), load_float(z, i, none)
            store(out, i, bits(u, v, w))

    out = np.zeros(x.shape, f"u{x.itemsize}")
    loop(x, y, z, out)
    return out


def on_bits(function: Callable[..., Any], *operands: Codes) -> Codes:
    """The same for unsigned lanes."""
    floats = [o.view(f"f{o.itemsize}") for o in operands]
    return on_floats(lambda *terms: function(*(as_bits(t) for t in terms)), *floats)
