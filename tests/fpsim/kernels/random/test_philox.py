"""Philox4x32-10 against Random123's published vectors (golden), vectors against blocks (law)."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from fpsim.judge.oracle.random import philox as oracle
from fpsim.kernels.lanes.memory import store
from fpsim.kernels.lanes.vectors import U32, iota, splat
from fpsim.kernels.random.philox import philox, philox_block

ONES = 0xFFFFFFFF
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.source("Random123 kat_vectors, philox4x32 10")
@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_a_block_is_the_published_one(counter, key, words):
    assert philox_block(*counter, *key) == words


def test_sixteen_counters_give_their_sixteen_blocks():
    @njit
    def blocks(out, c1, k0, k1):
        counters = iota(U32) + np.uint32(0xFFFFFFF8)  # the counter wraps around inside the vector
        zero = splat(np.uint32(0), U32)
        w = philox(counters, zero + c1, zero + np.uint32(3), zero, k0, k1)
        for i in range(4):
            store(out, 16 * i, w[i])

    out = np.zeros(64, np.uint32)
    key = 0x89ABCDEF, 0x01234567
    blocks(out, np.uint32(5), *map(np.uint32, key))
    for lane in range(16):
        counter = (0xFFFFFFF8 + lane) & ONES, 5, 3, 0
        words = tuple(int(w) for w in out.reshape(4, 16)[:, lane])
        assert words == philox_block(*counter, *key) == oracle(counter, key)
