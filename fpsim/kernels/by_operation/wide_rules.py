"""Norms, gelu, softmax and Adam in binary64, each in one call, by the operations of `ipu.ops`.

Each takes the operations in their order, by the processor's own arithmetic, and the sums as
`fpsim.products.spread_sums` does, so that the bits are those of one operation after the other. Of
NaNs only those of the results are unified (`fpsim.kernels.elementwise.binary64`).

Source    ipu.ops.norms, ipu.ops.activations, ipu.ops.probabilities, ipu.ops.updates.tensorflow.
"""

from __future__ import annotations

import numpy as np

from fpsim.kernels.by_operation.wide_chains import room_for_parts, spread_total
from fpsim.kernels.compiling import compiled
from fpsim.kernels.elementwise.binary64 import unify

__all__ = [
    "adam", "exponents", "gelu_argument", "gelu_gradient", "gelu_product", "shares",
    "shares_gradient", "whiten", "whitened_gradient",
]

#: The smallest positive number.
_LEAST = 2.0**-1074


@compiled
def whiten(x, gamma, beta, epsilon, stable, out, whitened, inverse):
    """Each row of x with mean 0 and variance 1, then times gamma plus beta; columns repeat these.

    Shapes    x, out and whitened are rows, `inverse` has a number for each.
    """
    rows, n = x.shape
    channels, room, squares, scale = gamma.shape[0], room_for_parts(n), np.empty(n), 1.0 / n
    for i in range(rows):
        row, white = x[i], whitened[i]
        mean = spread_total(row, room) * scale
        for k in range(n):
            white[k] = row[k] - mean
        base = white if stable else row
        for k in range(n):
            squares[k] = base[k] * base[k]
        variance = spread_total(squares, room) * scale
        if not stable:
            variance = variance - mean * mean
            variance = 0.0 if variance < _LEAST else variance
        inverse[i] = 1.0 / np.sqrt(variance + epsilon)
        for k in range(n):
            white[k] *= inverse[i]
        for start in range(0, n, channels):
            for c in range(channels):
                out[i, start + c] = white[start + c] * gamma[c] + beta[c]
        unify(white)
        unify(out[i])
    unify(inverse)


@compiled
def whitened_gradient(gradient, gamma, whitened, inverse, out):
    """The gradient to x of `whiten`; shapes are as there."""
    rows, n = gradient.shape
    channels, room, terms, scale = gamma.shape[0], room_for_parts(n), np.empty(n), -(1.0 / n)
    for i in range(rows):
        h, white = out[i], whitened[i]
        for start in range(0, n, channels):
            for c in range(channels):
                h[start + c] = gradient[i, start + c] * gamma[c]
        for k in range(n):
            terms[k] = white[k] * h[k]
        bend, shift = spread_total(terms, room) * scale, spread_total(h, room) * scale
        for k in range(n):
            h[k] = (h[k] + white[k] * bend + shift) * inverse[i]
        unify(h)


@compiled
def gelu_argument(x, slope, cubic, out):
    """out = (x · slope) · (x² · cubic + 1), of which gelu takes the hyperbolic tangent."""
    for k in range(x.shape[0]):
        out[k] = x[k] * slope * (x[k] * x[k] * cubic + 1.0)
    unify(out)


@compiled
def gelu_product(x, t, out):
    """out = x · ((t + 1) / 2)."""
    for k in range(x.shape[0]):
        out[k] = x[k] * ((t[k] + 1.0) * 0.5)
    unify(out)


@compiled
def gelu_gradient(gradient, x, t, half_slope, cubic, out):
    """out = gradient · ((t + 1) / 2 + x · ((1 - t²) · half_slope) · (x² · cubic + 1))."""
    for k in range(x.shape[0]):
        rise = x[k] * ((1.0 - t[k] * t[k]) * half_slope) * (x[k] * x[k] * cubic + 1.0)
        out[k] = gradient[k] * ((t[k] + 1.0) * 0.5 + rise)
    unify(out)


@compiled
def exponents(x, out):
    """out = x less the largest number of its row, which a NaN is not; of a row of NaNs a NaN."""
    rows, n = x.shape
    for i in range(rows):
        largest = -np.inf
        for k in range(n):
            largest = x[i, k] if x[i, k] > largest else largest
        for k in range(n):
            out[i, k] = x[i, k] - largest


@compiled
def shares(powers):
    """Each number becomes its share of its row."""
    rows, n = powers.shape
    room = room_for_parts(n)
    for i in range(rows):
        total = spread_total(powers[i], room)
        for k in range(n):
            powers[i, k] /= total
        unify(powers[i])


@compiled
def shares_gradient(gradient, share, out):
    """out = share · (gradient - the sum of gradient · share in the row)."""
    rows, n = share.shape
    room, terms = room_for_parts(n), np.empty(n)
    for i in range(rows):
        for k in range(n):
            terms[k] = gradient[i, k] * share[i, k]
        common = spread_total(terms, room)
        for k in range(n):
            out[i, k] = share[i, k] * (gradient[i, k] - common)
        unify(out[i])


@compiled
def adam(w, g, slots, rests, alpha, epsilon, moments, change, values):
    """The moments, and w less (m · alpha) / (√v + epsilon).

    rests     1 less the shares that moments keep, one for each.
    Shapes    slots and moments are (2, n), the others flat.
    """
    m, v, rest1, rest2 = moments[0], moments[1], rests[0], rests[1]
    old_m, old_v = slots
    for k in range(w.shape[0]):
        m[k] = old_m[k] + (g[k] - old_m[k]) * rest1
        v[k] = old_v[k] + (g[k] * g[k] - old_v[k]) * rest2
        change[k] = m[k] * alpha / (np.sqrt(v[k]) + epsilon)
        values[k] = w[k] - change[k]
    for result in (m, v, change, values):
        unify(result)
