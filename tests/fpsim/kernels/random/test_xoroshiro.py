"""xoroshiro128aox and its source: recurrence, lanes, low digits, seeding, bounds (golden, law).

The numbers come from the published recurrence by hand: with s0 = 1, s1 = 2, sx = 3, sa = 0 the
draw is 3; s0 becomes rotl(1, 55) ^ 3 ^ 3 << 14 and s1 becomes rotl(3, 36).
"""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.kernels.random.xoroshiro import dealt_lanes, xoroshiro_lanes
from tests.fpsim.kernels.random.recurrence import dealt, draws, lanes


@pytest.mark.source("Hanlon, arXiv 2203.04058")
def test_the_first_draws_by_hand():
    numbers, s0, s1 = xoroshiro_lanes(1, 2, 4)
    assert numbers.tolist() == [3, 0, 0, 0]
    assert (s0, s1) == (0x0080_0000_0000_C003, 0x30_0000_0000)
    # sx = 0x0080_0030_0000_C003, sa = 0: the draw is sx, its lanes the lowest 16 digits first.
    numbers, s0, s1 = xoroshiro_lanes(s0, s1, 4)
    assert numbers.tolist() == [0xC003, 0x0000, 0x0030, 0x0080]


def test_the_and_of_both_words_is_rotated_by_one_and_two():
    # sx = 0, sa = 2**63 + 1: rotl by 1 is 3, by 2 is 6, together 7.
    assert xoroshiro_lanes(1 << 63 | 1, 1 << 63 | 1, 1)[0].tolist() == [7]


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 8, 1001])
def test_lanes_of_any_number_of_elements(n):
    state = 0x0123456789ABCDEF, 0xFEDCBA9876543211
    numbers, *after = xoroshiro_lanes(*state, n)
    # An operation that ends inside a draw drops the rest of it.
    assert (numbers.tolist(), tuple(after)) == lanes(state, n)


STREAMS = [[(1, 2), (4, 8), (3 << 60 | 5, 77)], [(16, 32), (64, 128), (7, 2**63 | 9)]]


def test_elements_of_two_groups_of_three_by_hand():
    """14 elements: blocks of 8; the first draw of (2**k, 2**(k+1)) is 3·2**k, as no bit is in both.

    Elements 0-3 take stream (1, 2), 4-7 (4, 8), 8-11 (16, 32) and 12, 13 (64, 128); the third
    member of each group draws nothing.
    """
    numbers, after = dealt_lanes(np.array(STREAMS, np.uint64), 14)
    expected = [3, 0, 0, 0, 12, 0, 0, 0, 48, 0, 0, 0, 192, 0]
    assert numbers.tolist() == [expected]
    assert (after == STREAMS).all(axis=2).tolist() == [[False, False, True], [False, False, True]]
    assert after[0, 0].tolist() == [0x0080_0000_0000_C003, 0x30_0000_0000]


@pytest.mark.parametrize("places", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 4, 5, 8, 9, 23, 24, 25, 27, 48, 49, 201])
def test_elements_are_dealt_as_the_definition_says(n, places):
    numbers, after = dealt_lanes(np.array(STREAMS, np.uint64), n, places)
    expected, states = dealt(STREAMS, n, places)
    assert numbers.tolist() == expected
    assert after.tolist() == [[list(state) for state in group] for group in states]


def test_a_rounding_takes_the_low_digits_of_its_lane():
    """1 + w ulp with w = 1/2: up iff the low r digits, as R, reach 2**(r - 1)."""
    state, n, r = (0x0123456789ABCDEF, 0xFEDCBA9876543211), 37, 5
    context = fp.Context(fp.BINARY16, rounding=fp.SR(r), bits=fp.Xoroshiro128aox(state=state))
    x = context.array(np.full(n, 1 + 2.0**-11))
    numbers = xoroshiro_lanes(*state, n)[0]
    assert (x.values > 1).tolist() == [bool(number >> (r - 1) & 1) for number in numbers]


def test_only_advance_moves_on():
    source = fp.Xoroshiro128aox(state=(1, 2))
    first = source.draw(0, (2, 3), 16)
    assert source.draw(1, (2, 3), 16).tolist() == first.tolist() == [3, 0, 0, 0, 0xC003, 0]
    assert source.state == (1, 2)
    source.advance()
    assert source.state == draws(1, 2, 2)[1]


def test_children_are_seeded_by_philox_from_both_words():
    source = fp.Xoroshiro128aox(state=(11, 22))
    child = source.spawn(3)
    assert child.state == (fp.Philox(11).spawn(3).seed, fp.Philox(22).spawn(3).seed)
    assert source.state == (11, 22)


@pytest.mark.source("Graphcore ISA, $PRNG_SEED")
def test_a_seed_is_written_to_the_register():
    """v, ~v, v << 13 | ~v >> 19 and ~v << 13 | v >> 19, words of 32 bits."""
    v = 0x80000001
    expected = (0x7FFFFFFE_80000001, 0xFFFFD000_00002FFF)
    assert (v << 13 | (v ^ 0xFFFFFFFF) >> 19) & 0xFFFFFFFF == 0x00002FFF
    assert fp.Xoroshiro128aox(v).state == expected


def test_bounds():
    with pytest.raises(ValueError, match="bits=17 is more than a lane of this generator owns"):
        fp.Xoroshiro128aox(1).draw(0, (4,), 17)
    with pytest.raises(ValueError, match="the seed register holds 32 bits"):
        fp.Xoroshiro128aox(1 << 32)
    with pytest.raises(ValueError, match="never leaves itself"):
        fp.Xoroshiro128aox(state=(0, 0))
