"""Batches without end, in an order that a seed and a position decide alone.

The position is the number of batches returned so far, one integer: a training that is resumed sets
it and goes on with the very batch that would have come.

Source    tf.data: `repeat().batch(n)` for the stored order; `shuffle().batch(n, drop_remainder=
          True).repeat()` with a buffer of all elements for the shuffled one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu.feed.data import Images
from ipu.learn.variables.initialisers import uniforms

__all__ = ["Batches", "shuffled", "whole_batches"]

Batch = tuple[NDArray[np.float64], NDArray[np.integer[Any]]]


def shuffled(n: int, seed: int, name: str) -> NDArray[np.int64]:
    """0 … n - 1 in an order that depends on the seed and the name.

    >>> sorted(shuffled(4, 0, "epoch 1").tolist())
    [0, 1, 2, 3]
    """
    return np.argsort(uniforms((n,), seed, name), kind="stable")


def whole_batches(n: int, size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The rows 0 … n - 1 in the order of an epoch, one batch to a line; the rest is dropped.

    Shapes    (n // size, size)
    """
    count = n // size
    return shuffled(n, seed, f"epoch {epoch}")[: count * size].reshape(count, size)


class Batches:
    """An iterator over batches of `size` samples: their values and their labels.

    shuffle     every epoch in an order of its own, what is left of an epoch dropped; else in the
                stored order, where a batch may go over the end and on from the beginning.
    position    batches returned so far; may be set.

    Raises      ValueError for a batch larger than the data.

    >>> batches = Batches(Images(np.eye(5), np.arange(5)), 2, shuffle=False)
    >>> [next(batches)[1].tolist() for _ in range(3)]
    [[0, 1], [2, 3], [4, 0]]
    >>> batches.position = 1
    >>> next(batches)[1].tolist()
    [2, 3]
    """

    def __init__(self, images: Images, size: int, *, shuffle: bool = True, seed: int = 0) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"batch_size={size!r} is not a size of a batch; use 1 or more")
        if size > len(images):
            raise ValueError(
                f"batch_size={size} is larger than the data, {len(images)} samples; use fewer"
            )
        self.images = images
        self.size = size
        self.shuffle = shuffle
        self.seed = seed
        self.position = 0
        self._order = (-1, np.arange(0))

    @property
    def per_epoch(self) -> int:
        """Whole batches in one epoch."""
        return len(self.images) // self.size

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Batch:
        batch = self.images[self._rows()]
        self.position += 1
        return batch.values, batch.labels

    def _rows(self) -> NDArray[np.int64]:
        if not self.shuffle:
            start = self.position * self.size
            return np.arange(start, start + self.size) % len(self.images)
        epoch, batch = divmod(self.position, self.per_epoch)
        if self._order[0] != epoch:
            self._order = (epoch, whole_batches(len(self.images), self.size, self.seed, epoch))
        rows: NDArray[np.int64] = self._order[1][batch]
        return rows
