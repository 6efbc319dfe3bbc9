"""Initial values of variables: deterministic numbers in binary64, rounded once into the variable.

The numbers of a variable depend on the seed and its full name alone, so policies that differ in
format start from the same values, each rounded, and the order of creation does not matter.

Source    Glorot & Bengio 2010; He et al. 2015; Philox4x64-10 of numpy.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fpsim.state.processor import usual_arithmetic

__all__ = ["Initialiser", "glorot_uniform", "he_uniform", "ones", "uniforms", "zeros"]

Shape = tuple[int, ...]
#: initialiser(shape, seed, name) -> binary64 values
Initialiser = Callable[[Shape, int, str], NDArray[np.float64]]


@usual_arithmetic
def uniforms(shape: Shape, seed: int, name: str) -> NDArray[np.float64]:
    """Numbers k / 2**53 in [0, 1), a function of shape, seed and name.

    >>> bool((uniforms((3,), 0, "w") == uniforms((3,), 0, "w")).all())
    True
    """
    digest = hashlib.sha256(name.encode()).digest()
    generator = np.random.Philox(key=[seed, int.from_bytes(digest[:8], "little")])
    words = generator.random_raw(math.prod(shape))
    values: NDArray[np.float64] = (words >> 11).astype(np.float64) * 2.0**-53
    return values.reshape(shape)


def zeros(shape: Shape, seed: int, name: str) -> NDArray[np.float64]:
    """All zero."""
    return np.zeros(shape)


def ones(shape: Shape, seed: int, name: str) -> NDArray[np.float64]:
    """All one."""
    return np.ones(shape)


@usual_arithmetic
def glorot_uniform(shape: Shape, seed: int, name: str) -> NDArray[np.float64]:
    """Uniform in ±sqrt(6 / (fan_in + fan_out)): TensorFlow's default."""
    fan_in, fan_out = _fans(shape)
    return _symmetric(math.sqrt(6 / (fan_in + fan_out)), shape, seed, name)


@usual_arithmetic
def he_uniform(shape: Shape, seed: int, name: str) -> NDArray[np.float64]:
    """Uniform in ±sqrt(6 / fan_in), for layers followed by relu."""
    fan_in, _ = _fans(shape)
    return _symmetric(math.sqrt(6 / fan_in), shape, seed, name)


def _symmetric(limit: float, shape: Shape, seed: int, name: str) -> NDArray[np.float64]:
    return (2 * uniforms(shape, seed, name) - 1) * limit


def _fans(shape: Shape) -> tuple[int, int]:
    """Inputs and outputs of one unit: the last two axes, times the window before them."""
    if len(shape) < 2:
        n = math.prod(shape)
        return n, n
    window = math.prod(shape[:-2])
    return shape[-2] * window, shape[-1] * window
