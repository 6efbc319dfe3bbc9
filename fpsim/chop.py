"""What programs written for MATLAB and the Manchester codes need to be ported line by line."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["MatlabRandom"]


class MatlabRandom:
    """MATLAB's uniform random numbers: `rng(seed)` and the calls of `rand` that follow it.

    Source    MATLAB's default generator is the Mersenne twister with 53-bit numbers, as numpy's
              RandomState is; matrices are filled by columns. Checked against the numbers that
              published programs print for their seeds (tests/experiments/published).

    >>> random = MatlabRandom(1)
    >>> random.rand(2, 2).round(4).tolist()
    [[0.417, 0.0001], [0.7203, 0.3023]]
    """

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 1 <= seed < 2**32:
            raise ValueError(
                f"seed={seed!r} has no stream that is known; use a whole number from 1 to 2**32 - 1"
            )
        self._state = np.random.RandomState(seed)

    def rand(self, *shape: int) -> NDArray[np.float64]:
        """Numbers from 0 to 1: rand(n) is a matrix of n by n, rand(m, n) one of m by n."""
        sides = shape * 2 if len(shape) == 1 else shape or (1, 1)
        values = self._state.random_sample(int(np.prod(sides)))
        return values.reshape(sides[::-1]).T

    def randi(self, largest: int, *shape: int) -> NDArray[np.int64]:
        """Whole numbers from 1 to the largest."""
        return np.floor(largest * self.rand(*shape)).astype(np.int64) + 1
