"""XXH64, a hash of 64 bits: one pass over bytes, several of them in a cycle of the processor.

Every word of eight bytes enters its lane by a bijection, so one changed word always changes a lane;
two different inputs have one hash in one of 2^64 cases. It is no hash against an adversary.

Source    Y. Collet, xxHash fast digest algorithm, doc/xxhash_spec.md of github.com/Cyan4973/xxHash.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fpsim.kernels.compiling import INLINE, compiled

__all__ = ["xxh64"]

_P1, _P2, _P3 = (
    np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))
_P4, _P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)

_NO_BYTES = np.empty(0, np.uint8)


@njit(**INLINE)
def _rotate(x, k):
    return (x << np.uint64(k)) | (x >> np.uint64(64 - k))


@njit(**INLINE)
def _round(lane, word):
    return _rotate(lane + word * _P2, 31) * _P1


@njit(**INLINE)
def _merge(total, lane):
    return (total ^ _round(np.uint64(0), lane)) * _P1 + _P4


@compiled
def _hash(words, tail, seed):
    n = len(words)
    whole = n - n % 4
    if whole:
        a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        for i in range(0, whole, 4):
            a, b = _round(a, words[i]), _round(b, words[i + 1])
            c, d = _round(c, words[i + 2]), _round(d, words[i + 3])
        total = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        total = _merge(_merge(_merge(_merge(total, a), b), c), d)
    else:
        total = seed + _P5
    total += np.uint64(8 * n + len(tail))
    for i in range(whole, n):
        total = _rotate(total ^ _round(np.uint64(0), words[i]), 27) * _P1 + _P4
    start = 0
    if len(tail) >= 4:
        word = np.uint64(0)
        for i in range(4):
            word |= np.uint64(tail[i]) << np.uint64(8 * i)
        total = _rotate(total ^ (word * _P1), 23) * _P2 + _P3
        start = 4
    for i in range(start, len(tail)):
        total = _rotate(total ^ (np.uint64(tail[i]) * _P5), 11) * _P1
    total = (total ^ (total >> np.uint64(33))) * _P2
    total = (total ^ (total >> np.uint64(29))) * _P3
    return total ^ (total >> np.uint64(32))


def xxh64(values: NDArray[np.generic], seed: int | np.uint64 = 0) -> int:
    """XXH64 of the bytes of an array, in the order of its elements.

    >>> f"{xxh64(np.frombuffer(b'abc', np.uint8)):016x}"
    '44bc2cf5ad770999'
    """
    if values.flags.c_contiguous and values.size and values.nbytes % 8 == 0:  # as most are
        words, tail = np.frombuffer(values, np.uint64), _NO_BYTES  # one call, of little time
    else:
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        n = len(data) // 8 * 8
        words, tail = data[:n].view(np.uint64), data[n:]
    if not words.flags.aligned:
        words = words.copy()
    return int(_hash(words, tail, np.uint64(seed)))
