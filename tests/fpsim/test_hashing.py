"""XXH3-64: published values for every way that the length chooses (golden), and memory (law).

Source    tests/sanity_test_vectors.h of github.com/Cyan4973/xxHash and, for lengths that are not in
          it, the Python package `xxhash` 4.1.0 (libxxhash 0.8.4) on the same bytes.
"""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.elementwise.hashing import xxh3

SEED = 0x9E3779B185EBCA8D

#: Length, and the hash of so many bytes with the seeds 0 and SEED.
VECTORS = [
    (0, 0x2D06800538D394C2, 0xA8A6B918B2F0364A),
    (1, 0xC44BDFF4074EECDB, 0x032BE332DD766EF8),  # 1 to 3
    (3, 0x54247382A8D6B94D, 0x634B8990B4976373),
    (4, 0xE5DC74BC51848A51, 0xAA2E7ECCB0C8F747),  # 4 to 8
    (6, 0x27B56A84CD2D7325, 0x84589C116AB59AB9),
    (8, 0x24CCC9ACAA9F65E4, 0x8F973410999B8F6B),
    (9, 0x14D5001C15DD3F2B, 0xB3AE7333D9013F60),  # 9 to 16
    (12, 0xA713DAF0DFBB77E7, 0xE7303E1B2336DE0E),
    (16, 0x981B17D36C7498C9, 0x663F29333B4DB6B1),
    (17, 0x796F5ACD3A60F862, 0xF3EC5067F4306DB3),  # 17 to 128
    (32, 0x9FEADDBDBF57EED3, 0x2199FAB1534893D9),
    (33, 0xABFB2D081B400A10, 0xAD56348DA574BB6D),
    (80, 0xBCDEFBBB2C47C90A, 0xC6DD0CB699532E73),
    (128, 0xFCFF24126754D861, 0x73FDE75280646649),
    (129, 0x98F1B0A679A2CA29, 0x21FFFDBCA099C844),  # 129 to 240
    (195, 0xCD94217EE362EC3A, 0xBA68003D370CB3D9),
    (240, 0x81C3C2B67F568CCF, 0xCC0F58C27EF3D8EE),
    (241, 0xC5A639ECD2030E5E, 0xDDA9B0A161D4829A),  # stripes of 64 bytes
    (256, 0x55DE574AD89D0AC5, 0x4D30234B7A3AA61C),
    (403, 0xCDEB804D65C6DEA4, 0x6259F6ECFD6443FD),
    (1024, 0xDD85C9B5C1109C5C, 0xEF368A8A2EBABAEF),  # one block of them
    (1025, 0xD870C0FA13211C6A, 0x96792BCF9AF88519),
    (1088, 0xCC1450EA6B52A8F4, 0x542632D046F3DDE4),
    (1089, 0xEF727B2EFFC4CC8C, 0xFF8423D886707134),
    (2048, 0xDD59E2C3A5F038E0, 0x66F81670669ABABC),
    (2367, 0xCB37AEB9E5D361ED, 0xD2DB3415B942B42A),
    (4104, 0x7E6885379F309E58, 0xDD8CBBA844976FDA),
]


def published_bytes(n):
    """The bytes of xxHash's own checks."""
    word, result = 2654435761, np.empty(n, np.uint8)
    for i in range(n):
        result[i] = word >> 56
        word = word * 11400714785074694797 % 2**64
    return result


BYTES = published_bytes(4104)


@pytest.mark.parametrize(("n", "unseeded", "seeded"), VECTORS)
def test_the_hash_is_xxh3(n, unseeded, seeded):
    """Wherever the bytes begin in memory."""
    for shift in range(3):
        room = np.zeros(n + shift, np.uint8)
        room[shift:] = BYTES[:n]
        assert (xxh3(room[shift:]), xxh3(room[shift:], SEED)) == (unseeded, seeded)


@pytest.mark.parametrize("dtype", ["u1", "<f2", "<f4", "<f8"])
def test_elements_are_hashed_in_their_order_whatever_their_memory(dtype):
    """Strides, dimensions and memory that cannot be written change nothing."""
    x = BYTES[:4096].view(dtype)
    expected = 0xE91206429D1F48F9
    wide = np.zeros((x.size, 2), dtype)
    wide[:, 1] = x
    fixed = x.copy()
    fixed.flags.writeable = False
    for same in (x, wide[:, 1], x.reshape(64, -1), np.asfortranarray(x.reshape(64, -1)), fixed):
        assert xxh3(same) == expected
    assert xxh3(x[::-1]) != expected


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_no_elements_are_no_bytes(shape):
    assert xxh3(np.zeros(shape, np.float32)) == VECTORS[0][1]


@pytest.mark.parametrize("n", [1, 5, 12, 100, 200, 500, 5000])
def test_one_flipped_bit_changes_the_hash(n):
    x = np.zeros(n, np.uint8)
    hashes = {xxh3(x)}
    for place in range(0, n, max(1, n // 50)):
        x[place] ^= 1 << place % 8
        hashes.add(xxh3(x))
        x[place] = 0
    assert len(hashes) == 1 + len(range(0, n, max(1, n // 50)))
