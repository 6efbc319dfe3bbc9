"""The network and the data of the experiments on handwritten digits.

scikit-learn's 1 797 digits, 8 × 8 pixels of 0 … 16: divided by 16 they are exact in every format
here. Splits and batches depend on the seed alone, so all policies see the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ipu.feed.batches import shuffled, whole_batches
from ipu.learn.nn import dense, relu
from ipu.learn.tensor import Tensor

#: Digits that are kept for the test, of 1 797.
HELD_BACK = 360
HIDDEN, CLASSES = 64, 10
LAYERS = ("hidden", "output")


def network(x: Tensor) -> Tensor:
    """Logits of two dense layers, 64 → 64 → 10."""
    return dense(relu(dense(x, HIDDEN, "hidden")), CLASSES, "output")


@dataclass(frozen=True)
class Digits:
    """Images as rows of 64 numbers in 0 … 1, and their labels."""

    images: NDArray[np.float64]
    labels: NDArray[np.int64]

    def split(self, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions of the digits to learn from and of those to test with."""
        order = shuffled(len(self.labels), seed, "split")
        return order[HELD_BACK:], order[:HELD_BACK]


@cache
def load() -> Digits:
    """The digits that come with scikit-learn."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Digits(bunch.data / 16, bunch.target.astype(np.int64))


def batches(
    positions: NDArray[np.int64], size: int, seed: int, epoch: int
) -> Iterator[NDArray[np.int64]]:
    """Whole batches of one epoch, the rest is dropped."""
    yield from positions[whole_batches(len(positions), size, seed, epoch)]
