"""Philox4x32-10 and the layout of random bits, in Python integers; used by tests only.

Source    Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011) and
          its Random123 library; docs/semantics.md §2 for the layout.
"""

from __future__ import annotations

from functools import lru_cache

__all__ = ["elementwise_R", "elementwise_word", "philox", "product_R", "product_word", "spawn_seed"]

MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)

Words = tuple[int, int, int, int]


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """The four words of one block.

    >>> [f"{word:08x}" for word in philox((0, 0, 0, 0), (0, 0))]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(MULTIPLIERS[0] * a, 1 << 32)
        high1, low1 = divmod(MULTIPLIERS[1] * c, 1 << 32)
        a, b, c, d = high1 ^ b ^ k0, low1, high0 ^ d ^ k1, low0
        k0, k1 = (k0 + KEY_STEPS[0]) & MASK, (k1 + KEY_STEPS[1]) & MASK
    return a, b, c, d


#: Several elements, or rounding places, take their bits of one block.
_block = lru_cache(maxsize=1 << 15)(philox)


def halves(n: int) -> tuple[int, int]:
    """A 64-bit number as (low, high) words."""
    return n & MASK, n >> 32


def half_word(word: int, high: bool) -> int:
    """One 16-bit half, moved to the top of a 32-bit word."""
    return (word >> 16) << 16 if high else (word & 0xFFFF) << 16


def elementwise_word(seed: int, n: int, i: int, r: int) -> int:
    """32 bits whose top r are R of element i (C order) of operation n.

    With `subnormal_bits`, r is the larger number; each element takes its own top bits.
    """
    per_lane = 8 if r <= 16 else 4
    g, rest = divmod(i, 16 * per_lane)
    h, lane = divmod(rest, 16)
    block = _block((16 * g + lane, 0, *halves(n)), halves(seed))
    return half_word(block[h % 4], h >= 4) if r <= 16 else block[h]


def product_word(seed: int, n: int, i: int, s: int, r: int) -> int:
    """32 bits whose top r are R of rounding place s of output i in a sum, dot or matmul."""
    per_block = 8 if r <= 16 else 4
    b, place = divmod(s, per_block)
    block = _block((i, 1 + b, *halves(n)), halves(seed))
    return half_word(block[place % 4], place >= 4) if r <= 16 else block[place]


def elementwise_R(seed: int, n: int, i: int, r: int) -> int:
    """R of element i of operation n.

    >>> elementwise_R(seed=0, n=0, i=0, r=16) == 0x6627E8D5 & 0xFFFF
    True
    """
    return elementwise_word(seed, n, i, r) >> (32 - r)


def product_R(seed: int, n: int, i: int, s: int, r: int) -> int:
    """R of rounding place s of output i of operation n."""
    return product_word(seed, n, i, s, r) >> (32 - r)


def spawn_seed(seed: int, k: int) -> int:
    """Seed of the k-th context spawned from one with this seed."""
    low, high, _, _ = philox((*halves(k), MASK, MASK), halves(seed))
    return low + (high << 32)
