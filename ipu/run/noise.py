"""Noise of a unit in the last place: what no comparison can tell from rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fpsim.records.formats import Format
from fpsim.state.processor import usual_arithmetic

__all__ = ["moved_apart", "moved_up", "result_noise"]


def moved_apart(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each number but zeros moved to its next one, neighbours to opposite sides.

    >>> (moved_apart(np.float32([1, 1, 0])) - np.float32(1)).tolist()
    [-5.960464477539063e-08, 1.1920928955078125e-07, -1.0]
    """
    ends = np.where(np.arange(values.size).reshape(values.shape) % 2, np.inf, -np.inf)
    return _moved(values, ends.astype(np.float32))


def moved_up(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each number but zeros moved to the next larger one.

    >>> (moved_up(np.float32([1, 0])) - np.float32(1)).tolist()
    [1.1920928955078125e-07, -1.0]
    """
    return _moved(values, np.float32(np.inf))


def _moved(
    values: NDArray[np.float32], ends: NDArray[np.float32] | np.float32
) -> NDArray[np.float32]:
    return np.where(values == 0, values, np.nextafter(values, ends))


def result_noise(
    seed: int,
) -> Callable[[NDArray[np.float32], Format], NDArray[np.float32]]:
    """What moves each number of a result up or down by a unit in its last place, at random.

    Zeros, numbers that are not finite, and those that would leave the format stay. The numbers of
    one call after another have other random bits.

    >>> from fpsim.records.formats import BINARY16
    >>> moved = result_noise(0)(np.float32([1.0, 1.0, 0.0, 65504.0]), BINARY16)
    >>> sorted({*(moved - np.float32([1.0, 1.0, 0.0, 65504.0])).tolist()} - {0.0, -32.0})
    [-0.0009765625, 0.0009765625]
    """
    random = np.random.Generator(np.random.Philox(key=seed))

    @usual_arithmetic
    def moved(values: NDArray[np.float32], fmt: Format) -> NDArray[np.float32]:
        _, exponents = np.frexp(values)
        units = np.ldexp(np.float32(1), np.maximum(exponents - 1, fmt.emin) - (fmt.precision - 1))
        signs = np.float32(1) - 2 * random.integers(0, 2, np.shape(values)).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            noisy = (values + signs * units).astype(np.float32)
            is_moved = np.isfinite(values) & (values != 0) & (abs(noisy) <= np.float32(fmt.max))
        return np.asarray(np.where(is_moved, noisy, values), np.float32)

    return moved
