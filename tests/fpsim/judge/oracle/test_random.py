"""The oracle's random words: known answers of Philox, and where each bit comes from (golden)."""

from __future__ import annotations

from fractions import Fraction

import pytest

from fpsim.judge.oracle import (
    elementwise_R,
    philox,
    product_R,
    spawn_seed,
)
from fpsim.records.flags import Flags
from fpsim.records.rounding import (
    MODES,
)

X, U, O, D, V = Flags.INEXACT, Flags.UNDERFLOW, Flags.OVERFLOW, Flags.DIVBYZERO, Flags.INVALID  # noqa: E741
NONE = Flags.NONE
ONE, MAX, INF, MINUS_INF, ZERO, MINUS_ZERO = 0x3C00, 0x7BFF, 0x7C00, 0xFC00, 0x0000, 0x8000
QNAN, SNAN = 0x7E00, 0x7D01
TINY = Fraction(1, 2**24)  # smallest subnormal of binary16
DETERMINISTIC = [m for m in MODES.values() if not m.stochastic]


# Random bits ---------------------------------------------------------------------------------


@pytest.mark.source("Random123 kat_vectors, philox4x32-10")
@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_known_answers(counter: str, key: str, words: str) -> None:
    result = philox(numbers(counter), numbers(key))  # type: ignore[arg-type]
    assert " ".join(f"{w:08x}" for w in result) == words


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in text.split())


def test_layout_of_elementwise_bits() -> None:
    seed, n = 0x1234_5678_9ABC_DEF0, 0x1_0000_0002
    key = (0x9ABCDEF0, 0x12345678)
    for i, lane, h in ((0, 0, 0), (15, 15, 0), (16, 0, 1), (64, 0, 4), (127, 15, 7), (128, 16, 0)):
        half = philox((lane, 0, 2, 1), key)[h % 4] >> (16 if h >= 4 else 0) & 0xFFFF
        assert elementwise_R(seed, n, i, 16) == half
        assert elementwise_R(seed, n, i, 5) == half >> 11
    for i, lane, h in ((0, 0, 0), (63, 15, 3), (64, 16, 0), (100, 20, 2)):
        block = philox((lane, 0, 2, 1), key)
        assert elementwise_R(seed, n, i, 27) == block[h] >> 5


def test_layout_of_the_bits_of_sums() -> None:
    for s, counter, place in ((0, 1, 0), (3, 1, 3), (7, 1, 7), (8, 2, 0), (21, 3, 5)):
        half = philox((9, counter, 4, 0), (3, 0))[place % 4] >> (16 if place >= 4 else 0) & 0xFFFF
        assert product_R(3, 4, 9, s, 13) == half >> 3
    for s, counter, place in ((0, 1, 0), (3, 1, 3), (4, 2, 0), (21, 6, 1)):
        assert product_R(3, 4, 9, s, 20) == philox((9, counter, 4, 0), (3, 0))[place] >> 12


def test_neighbouring_elements_of_an_operation_share_nothing() -> None:
    words = {(i, elementwise_R(1, 0, i, 32)) for i in range(512)}
    assert len({w for _, w in words}) == 512


def test_spawned_seeds_differ_and_stay_within_64_bits() -> None:
    seeds = [spawn_seed(5, k) for k in range(100)]
    assert len(set(seeds)) == 100
    assert all(0 <= seed < 2**64 for seed in seeds)
    first = philox((1, 0, 2**32 - 1, 2**32 - 1), (5, 0))
    assert seeds[1] == first[0] | first[1] << 32
