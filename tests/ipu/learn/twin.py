"""The small network's training in numpy's float32: an independent implementation for tests.

Products are chains of fused multiply-adds; one is emulated here as the exact binary64 product, its
sum with the addend by TwoSum rounded to odd, then rounded to binary32 (docs/semantics.md §5: f32
inputs, one fma per term, ascending). Sums run in index order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Single = NDArray[np.float32]


def fma(a: Single, b: Single, c: Single) -> Single:
    """a · b + c with one rounding to nearest."""
    product, addend = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    bits = np.ascontiguousarray(total).view(np.int64)
    even = (bits & 1) == 0
    # The next number toward the error has an odd last digit.
    away = (error > 0) == (total > 0)
    odd = np.where((error != 0) & even, bits + np.where(away, 1, -1), bits)
    return odd.view(np.float64).astype(np.float32)


def matmul(a: Single, b: Single) -> Single:
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        x, y = np.broadcast_arrays(a[:, k : k + 1], b[k : k + 1])
        total = fma(x, y, total)
    return total


def sum_of(a: Single, axis: int) -> Single:
    return np.add.accumulate(a, axis=axis, dtype=np.float32).take(-1, axis=axis)


def exact(function: Any, x: Single) -> Single:
    """A function whose binary64 value, rounded, is the correctly rounded one on these inputs."""
    rounded: Single = function(x.astype(np.float64)).astype(np.float32)
    return rounded


class Twin:
    """Two dense layers, relu between, softmax cross-entropy, SGD with momentum."""

    def __init__(self, variables: dict[str, Any], rate: float, momentum: float) -> None:
        self.variables = variables
        self.rate, self.momentum = np.float32(rate), np.float32(momentum)
        self.slots = {name: np.zeros_like(v) for name, v in variables.items()}

    def step(self, x: Single, labels: NDArray[Any]) -> np.float32:
        w1, b1, w2, b2 = (
            self.variables[f"all_vars/{layer}/{part}"]
            for layer in ("hidden", "output")
            for part in ("weights", "biases")
        )
        hidden = np.maximum(matmul(x, w1) + b1, np.float32(0))
        logits = matmul(hidden, w2) + b2
        loss, g = self._loss(logits, labels)
        below = np.where(hidden > 0, matmul(g, w2.T), np.float32(0))
        result = (matmul(x.T, below), sum_of(below, 0), matmul(hidden.T, g), sum_of(g, 0))
        self._update(dict(zip(self.variables, result, strict=True)))
        return loss

    def _loss(self, logits: Single, labels: NDArray[Any]) -> tuple[np.float32, Single]:
        n = np.float32(len(labels))
        z = logits - logits.max(axis=1, keepdims=True)
        e = exact(np.exp, z)
        total = sum_of(e, 1)
        entropy = exact(np.log, total) - z[np.arange(len(labels)), labels]
        hot = np.eye(logits.shape[1], dtype=np.float32)[labels]
        gradient = (e / total[:, None] - hot) * (np.float32(1) / n)
        return np.float32(sum_of(entropy, 0) / n), gradient

    def _update(self, gradients: dict[str, Single]) -> None:
        for name, g in gradients.items():
            v = self.momentum * self.slots[name] + g if self.momentum else g
            self.slots[name] = v
            self.variables[name] = self.variables[name] - self.rate * v
