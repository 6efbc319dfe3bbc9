"""The sign of results that are zero, for loops whose roundings lose it.

A sum of rounded products begins with a zero: -0, or +0 beneath RTN. A zero result has the sign of
that start where all products have it, since then every partial was that zero. Otherwise a product
of the other sign or a difference made a zero of the other sign, which stays. So the signs of the
products decide, which are those of the factors, and a few terms mostly show that both occur.

Source    docs/semantics.md §1 (signs of zero) and §4.
"""

from __future__ import annotations

from numba import njit

from fpsim.kernels.compiling import INLINE
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load_float, spread_like
from fpsim.kernels.lanes.vectors import any_lane, as_bits, as_float, lanes_of, select, sign_like

__all__ = ["settle_zeros"]

#: Terms between two looks whether a zero is left whose products all have the sign of the start.
_TERMS = 8


@formula
def _zeros(c):
    """The sign bit of every lane that is zero."""
    zeros = []
    for acc in c:
        bits = as_bits(acc)
        sign = sign_like(bits)
        zeros.append(select((bits & ~sign) == 0, sign, bits ^ bits))
    return tuple(zeros)


@formula
def _joined(signs):
    """Whether one lane of several vectors is not zero, as a mask."""
    merged = signs[0]
    for bits in signs[1:]:
        merged = merged | bits
    return merged != 0


@formula
def _alike(signs, a, x, u, v, start):
    """The lanes whose products have had the sign of the start so far, a term later."""
    alike = []
    for i, bits in enumerate(signs):
        product = as_bits(spread_like(a, x[i // 2], bits)) ^ as_bits((u, v)[i % 2])
        alike.append(bits & ~(product ^ start))
    return tuple(alike)


@formula
def _signed(c, signs, start):
    """Zeros with the sign of the start where all products had it, else with the other one."""
    results = []
    for acc, alike in zip(c, signs, strict=True):
        bits = as_bits(acc)
        sign = sign_like(bits)
        zero = (start ^ sign ^ alike) & sign
        results.append(as_float(select((bits & ~sign) == 0, zero, bits)))
    return tuple(results)


@njit(**INLINE)
def settle_zeros(c, a, rows, b, j, depth, wide, start):
    """Eight vectors of sums, two in each of four rows, with the sign of their zeros settled.

    Operands as `fpsim.kernels.by_operation.deterministic` reads them: rows begin at `rows` in a,
    columns at j in b; `start` is the zero that a sum begins with.
    """
    signs = _zeros(c)
    if any_lane(_joined(signs)):
        x0, x1, x2, x3 = rows
        for k in range(depth):
            u = load_float(b, j + k * wide, start)
            v = load_float(b, j + k * wide + lanes_of(start), start)
            signs = _alike(signs, a, (x0 + k, x1 + k, x2 + k, x3 + k), u, v, start)
            if k % _TERMS == 0 and not any_lane(_joined(signs)):
                break
        c = _signed(c, signs, start)
    return c
