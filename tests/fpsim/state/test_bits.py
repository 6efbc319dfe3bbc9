"""Sources of random bits: differential (Python integers), corners, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.judge.oracle import spawn_seed
from fpsim.state.bits import Philox, Replay, Xoroshiro128aox, check_seed
from tests.fpsim.kernels.random.recurrence import draws, lanes


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1, np.uint64(2**64 - 1), np.int8(5)])
def test_a_seed_becomes_a_plain_integer(seed):
    assert check_seed(seed) == int(seed)
    assert type(check_seed(seed)) is int


@pytest.mark.parametrize("seed", [-1, 2**64, np.int64(-1)])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(ValueError, match="out of range"):
        check_seed(seed)


@pytest.mark.parametrize("seed", [True, 1.0, "1", None, np.float64(1)])
def test_what_is_no_integer_is_no_seed(seed):
    with pytest.raises(TypeError, match="not an integer"):
        check_seed(seed)


def test_without_a_seed_it_is_zero():
    assert Philox().seed == 0
    assert Xoroshiro128aox().state == Xoroshiro128aox(0).state != Xoroshiro128aox(1).state


@pytest.mark.parametrize("seed", [0, 42, 2**32, 2**64 - 1])
def test_children_of_philox_have_the_seeds_of_the_definition(seed):
    for k in (0, 1, 2**32, 2**64 - 1):
        assert Philox(seed).spawn(k).seed == spawn_seed(seed, k)
    assert Philox(seed).draw(0, (3,), 13) is None
    with pytest.raises(ValueError, match="out of range"):
        Philox(seed).spawn(-1)


@pytest.mark.parametrize("n", [1, 4, 5, 16])
def test_one_draw_of_the_device_serves_four_elements(n):
    """Hanlon, arXiv 2203.04058: listing of xoroshiro128aox."""
    source = Xoroshiro128aox(state=(3 << 60 | 12345, 2**63 | 99))
    drawn = source.draw(0, (n,), 16)
    assert drawn.dtype == np.uint32
    assert drawn.tolist() == lanes(source.state, n)[0]


def test_only_advancing_moves_the_device_on():
    source = Xoroshiro128aox(7)
    begin = source.state
    first = source.draw(0, (2, 3), 8).tolist()
    assert source.state == begin
    assert source.draw(0, (2, 3), 8).tolist() == first
    source.advance()
    assert source.state == draws(*begin, 2)[1]
    assert source.draw(0, (2, 3), 8).tolist() != first


def test_a_seed_of_the_device_is_what_its_register_takes():
    seed = 0x12345678
    inverse = ~seed & 0xFFFFFFFF

    def rolled(x, y):
        return (x << 13 | y >> 19) & 0xFFFFFFFF

    first, second = Xoroshiro128aox(seed).state
    assert first == seed | inverse << 32
    assert second == rolled(seed, inverse) | rolled(inverse, seed) << 32
    assert Xoroshiro128aox(2**32 - 1).state != Xoroshiro128aox(0).state
    with pytest.raises(ValueError, match="32 bits"):
        Xoroshiro128aox(2**32)


def test_impossible_states_and_bits_of_the_device_are_refused():
    with pytest.raises(ValueError, match="never leaves itself"):
        Xoroshiro128aox(state=(0, 0))
    with pytest.raises(ValueError, match="out of range"):
        Xoroshiro128aox(state=(2**64, 0))
    with pytest.raises(ValueError, match="bits=17"):
        Xoroshiro128aox(1).draw(0, (1,), 17)


def test_children_of_the_device_are_those_of_its_words():
    parent = Xoroshiro128aox(state=(5, 6))
    assert parent.spawn(2).state == (spawn_seed(5, 2), spawn_seed(6, 2))
    assert parent.state == (5, 6)


def test_given_integers_come_in_order_and_stay_until_the_operation_is_published():
    source = Replay([[[1, 2], [3, 4]], [5]])
    for _ in range(2):
        assert source.draw(9, (2, 2), 3).tolist() == [1, 2, 3, 4]
    source.advance()
    assert source.draw(0, (1,), 3).tolist() == [5]
    source.advance()
    with pytest.raises(ValueError, match="used up after 2"):
        source.draw(0, (1,), 3)
    with pytest.raises(TypeError, match="cannot spawn"):
        source.spawn(0)


@pytest.mark.parametrize(
    ("array", "kind", "message"),
    [
        ([1, 2, 3], ValueError, "shape"),
        ([1, 8], ValueError, r"0 to 2\*\*3 - 1"),
        ([-1, 2], ValueError, r"0 to 2\*\*3 - 1"),
        ([1.0, 2.0], TypeError, "dtype float64"),
        ([True, False], TypeError, "dtype bool"),
    ],
)
def test_given_integers_are_checked(array, kind, message):
    with pytest.raises(kind, match=message):
        Replay([array]).draw(0, (2,), 3)
    assert Replay([[0, 7]]).draw(0, (2,), 3).tolist() == [0, 7]


def test_a_context_takes_the_integers_as_they_are():
    """R = 2**bits - 1 takes every number up that is not a value, R = 0 none."""
    context = fp.Context(fp.BINARY16, rounding=fp.SR(4), bits=Replay([[0, 15, 15]]))
    x = context.array([1 + 2.0**-14, 1 + 2.0**-14, 1.0])
    assert x.codes().tolist() == [0x3C00, 0x3C01, 0x3C00]
