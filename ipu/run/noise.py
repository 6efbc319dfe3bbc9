"""Noise of a unit in the last place: what no comparison can tell from rounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fpsim.records.formats import Format
from fpsim.state.processor import usual_arithmetic

__all__ = ["ResultNoise", "moved_up"]


def moved_up(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each number but zeros moved to the next larger one.

    >>> (moved_up(np.float32([1, 0])) - np.float32(1)).tolist()
    [1.1920928955078125e-07, -1.0]
    """
    return np.where(values == 0, values, np.nextafter(values, np.float32(np.inf)))


class ResultNoise:
    """Moves each number of a result up or down by a unit in the last place of a format, at random.

    fmt    whose precision decides how far; the range is that of the result's own format.

    So a run shows what the precision of `fmt` may do to it, without its range. Zeros, numbers that
    are not finite, and those that would leave their format stay. Each call has other random bits.

    >>> from fpsim.records.formats import BINARY16, BINARY32
    >>> moved = ResultNoise(BINARY16, 0)(np.float32([1.0, 1.0, 1.0, 0.0]), BINARY32)
    >>> sorted({*(moved - np.float32([1.0, 1.0, 1.0, 0.0])).tolist()})
    [-0.0009765625, 0.0, 0.0009765625]
    """

    def __init__(self, fmt: Format, seed: int) -> None:
        self.format = fmt
        self._random = np.random.Generator(np.random.Philox(key=seed))

    @usual_arithmetic
    def __call__(self, values: NDArray[np.float32], fmt: Format) -> NDArray[np.float32]:
        """The numbers of a result of this format, moved."""
        _, exponents = np.frexp(values)
        precision = min(self.format.precision, fmt.precision)
        units = np.ldexp(np.float32(1), np.maximum(exponents - 1, fmt.emin) - (precision - 1))
        signs = 1 - 2 * self._random.integers(0, 2, np.shape(values)).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            noisy = np.asarray(values + signs * units, np.float32)
            is_moved = np.isfinite(values) & (values != 0) & (abs(noisy) <= np.float32(fmt.max))
        return np.asarray(np.where(is_moved, noisy, values), np.float32)
