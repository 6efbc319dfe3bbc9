"""The smallest set that suffices: planted sets are found (law)."""

from __future__ import annotations

import random

import pytest

from ipu.run.subsets import smallest


@pytest.mark.parametrize("size", range(6))
def test_a_planted_set_is_what_is_left(size):
    generator = random.Random(size)
    for n in (max(size, 1), 7, 16, 33):
        planted = set(generator.sample(range(n), min(size, n)))
        items, is_smallest = smallest(range(n), lambda xs, planted=planted: planted <= set(xs))
        assert is_smallest
        assert set(items) == (planted or set(items))
        assert len(items) == max(len(planted), 1)


def test_of_two_sets_one_is_found_whole():
    """Nothing can be left out of what is found, though another set is smaller."""
    sets = ({1, 2, 3}, {9})
    items, _ = smallest(range(12), lambda xs: any(s <= set(xs) for s in sets))
    assert set(items) in sets


def test_it_stops_when_it_is_told_to():
    calls = iter(range(100))
    items, is_smallest = smallest(
        range(16), lambda xs: {3, 12} <= set(xs), lambda: next(calls) < 3)
    assert not is_smallest
    assert {3, 12} <= set(items)
