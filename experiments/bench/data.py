"""The numbers that benchmarks run on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["DATA", "make"]

#: Kinds of data: what a network's tensors look like, and what a hostile one does.
DATA = ("normal", "mixed")

SEED = 20_240_229


def make(kind: str, n: int, seed: int = 0) -> NDArray[np.float32]:
    """n binary32 numbers: `normal` is N(0, 1); `mixed` is 55 % N(0, 1), 40 % of log-uniform
    magnitude from 2**-28 to 2**17 with either sign, 5 % exact finite binary16 values, shuffled.

    >>> float(abs(make("mixed", 1000)).max()) < 2**17
    True
    """
    rng = np.random.default_rng([SEED, seed])
    x = rng.standard_normal(n, np.float32)
    if kind == "normal":
        return x
    kinds = rng.random(n, np.float32)
    spread = (kinds >= 0.55) & (kinds < 0.95)
    k = int(spread.sum())
    x[spread] = np.exp2(rng.uniform(-28, 17, k)) * rng.choice((-1.0, 1.0), k)
    exact = kinds >= 0.95
    codes = rng.integers(0, 0x7C00, int(exact.sum()), np.uint16)
    codes |= rng.integers(0, 2, codes.size, np.uint16) << 15
    x[exact] = codes.view(np.float16)
    return x
