"""Batches: law (every sample once, the position decides alone), golden (the stored order)."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from ipu.feed.batches import Batches
from ipu.feed.data import Images


def batches_of(n=10, size=3, **options):
    return Batches(Images(np.arange(n)[:, np.newaxis] / 16, np.arange(n)), size, **options)


def taken(batches, n):
    return [labels.tolist() for _, labels in islice(batches, n)]


@pytest.mark.source("S4-56")
def test_shuffled_epochs_have_whole_batches_and_no_sample_twice():
    batches = batches_of()
    assert batches.per_epoch == 3
    first, second = taken(batches, 3), taken(batches, 3)
    for epoch in (first, second):
        assert len({x for batch in epoch for x in batch}) == 9
    assert first != second


def test_the_stored_order_goes_over_the_end():
    assert taken(batches_of(shuffle=False), 5) == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
        [9, 0, 1],
        [2, 3, 4],
    ]


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_position_decides_what_comes_next(shuffle):
    complete = taken(batches_of(shuffle=shuffle, seed=4), 12)
    for position in range(12):
        again = batches_of(shuffle=shuffle, seed=4)
        again.position = position
        assert taken(again, 12 - position) == complete[position:]
        assert again.position == 12


def test_another_seed_is_another_order():
    assert taken(batches_of(seed=1), 3) != taken(batches_of(seed=2), 3)


def test_values_go_with_their_labels():
    for values, labels in islice(batches_of(), 4):
        assert (values[:, 0] * 16 == labels).all()


@pytest.mark.parametrize(
    ("size", "message"),
    [(11, "batch_size=11 is larger than the data, 10 samples"), (0, "use 1 or more"),
     (2.0, "use 1 or more"), (True, "use 1 or more")],
)
def test_impossible_batches_are_refused(size, message):
    with pytest.raises(ValueError, match=message):
        batches_of(size=size)
