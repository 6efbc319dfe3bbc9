"""XXH3, a hash of 64 bits: one pass over bytes, about as fast as the caches give them.

Long inputs go by stripes of 64 bytes into eight lanes, which are one vector; short ones through
products of 128 bits. Two different inputs have one hash in one of 2^64 cases. It is no hash against
an adversary.

Source    Y. Collet, xxHash fast digest algorithm, doc/xxhash_spec.md of github.com/Cyan4973/xxHash.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numpy.typing import NDArray

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.formula import instruction
from fpsim.kernels.lanes.memory import load, pointer, room, store
from fpsim.kernels.lanes.vectors import Lanes, pairs_joined, unary

__all__ = ["xxh3"]

_SECRET = np.frombuffer(bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
), np.uint8)
_P32_1, _P32_2, _P32_3 = (np.uint64(0x9E3779B1), np.uint64(0x85EBCA77), np.uint64(0xC2B2AE3D))
_P64_1, _P64_2, _P64_3 = (
    np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))
_P64_4, _P64_5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)
_MX1, _MX2 = np.uint64(0x165667919E3779F9), np.uint64(0x9FB21C651E98DF25)
#: What the lanes are before the first stripe.
_START = np.array(
    [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1], np.uint64).view(np.uint8)
#: Every other word of the secret loses the seed that the ones between get.
_NEGATED = np.array([0, -1] * 4, np.int64).view(np.uint8)
#: Bytes of a stripe, of a block of stripes, and of the secret.
_STRIPE, _BLOCK, _LENGTH = 64, 1024, 192
_LOW = np.uint64(0xFFFFFFFF)


# Words and products ---------------------------------------------------------------------------


def _little(width: int) -> Any:
    """A word of the memory behind a pointer to bytes, wherever it begins."""

    def definition(_typing: Any, address: Any, place: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = ir.IntType(width)
            at = builder.bitcast(builder.gep(args[0], [args[1]]), kind.as_pointer())
            return builder.zext(builder.load(at, align=1), ir.IntType(64))

        return types.uint64(address, types.intp), codegen

    definition.__name__ = f"word{width}"
    return instruction(definition)


_word32, _word64 = _little(32), _little(64)


@instruction
def _folded(typingctx: Any, a: Any, b: Any) -> Any:
    """The product of 128 bits, its halves xored."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        wide, word = ir.IntType(128), ir.IntType(64)
        whole = builder.mul(*(builder.zext(x, wide) for x in args))
        upper = builder.lshr(whole, ir.Constant(wide, 64))
        return builder.xor(builder.trunc(whole, word), builder.trunc(upper, word))

    return types.uint64(types.uint64, types.uint64), codegen


@instruction
def _bytes_turned(typingctx: Any, word: Any) -> Any:
    """The word with its bytes in the other order."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bswap(args[0])

    return types.uint64(types.uint64), codegen


def _exchange(builder: Any, value: Any, a: Lanes, result: Lanes) -> Any:
    order = ir.Constant(ir.VectorType(ir.IntType(32), a.n), [i ^ 1 for i in range(a.n)])
    return builder.shuffle_vector(value, ir.Constant(a.vector, ir.Undefined), order)


#: The lanes of each pair exchanged.
_exchanged = unary(lambda a: a, _exchange)


@njit(**INLINE)
def _rotate(x, k):
    return (x << np.uint64(k)) | (x >> np.uint64(64 - k))


@njit(**INLINE)
def _avalanche(x):
    x = (x ^ (x >> np.uint64(37))) * _MX1
    return x ^ (x >> np.uint64(32))


@njit(**INLINE)
def _avalanche_of_short(x):
    x = (x ^ (x >> np.uint64(33))) * _P64_2
    x = (x ^ (x >> np.uint64(29))) * _P64_3
    return x ^ (x >> np.uint64(32))


# Up to 16 bytes -------------------------------------------------------------------------------


@njit(**INLINE)
def _of_short(data, n, seed):
    secret = pointer(_SECRET)
    if n > 8:
        low = ((_word64(secret, 24) ^ _word64(secret, 32)) + seed) ^ _word64(data, 0)
        high = ((_word64(secret, 40) ^ _word64(secret, 48)) - seed) ^ _word64(data, n - 8)
        return _avalanche(np.uint64(n) + _bytes_turned(low) + high + _folded(low, high))
    if n >= 4:
        seed ^= _bytes_turned(seed & _LOW)
        word = _word32(data, n - 4) | (_word32(data, 0) << np.uint64(32))
        word ^= (_word64(secret, 8) ^ _word64(secret, 16)) - seed
        word = (word ^ _rotate(word, 49) ^ _rotate(word, 24)) * _MX2
        word = (word ^ ((word >> np.uint64(35)) + np.uint64(n))) * _MX2
        return word ^ (word >> np.uint64(28))
    if n > 0:
        word = np.uint64(data[n - 1]) | np.uint64(n << 8)
        word |= (np.uint64(data[0]) << np.uint64(16)) | (np.uint64(data[n >> 1]) << np.uint64(24))
        return _avalanche_of_short(((_word32(secret, 0) ^ _word32(secret, 4)) + seed) ^ word)
    return _avalanche_of_short(seed ^ _word64(secret, 56) ^ _word64(secret, 64))


# Up to 240 bytes ------------------------------------------------------------------------------


@njit(**INLINE)
def _mix(data, i, secret, k, seed):
    """16 bytes from i on, and of the secret from k on."""
    return _folded(_word64(data, i) ^ (_word64(secret, k) + seed),
                   _word64(data, i + 8) ^ (_word64(secret, k + 8) - seed))


@njit(**INLINE)
def _of_medium(data, n, seed):
    secret, total = pointer(_SECRET), np.uint64(n) * _P64_1
    if n <= 128:
        for i in range((n - 1) // 32 + 1):
            total += _mix(data, 16 * i, secret, 32 * i, seed)
            total += _mix(data, n - 16 * i - 16, secret, 32 * i + 16, seed)
        return _avalanche(total)
    for i in range(0, 128, 16):
        total += _mix(data, i, secret, i, seed)
    total = _avalanche(total)
    for i in range(128, n // 16 * 16, 16):
        total += _mix(data, i, secret, i - 125, seed)
    return _avalanche(total + _mix(data, n - 16, secret, 119, seed))


# More -----------------------------------------------------------------------------------------


@njit(**INLINE)
def _words(address, i):
    return pairs_joined(load(address, i))


@njit(**INLINE)
def _accumulated(lanes, data, i, secret, k):
    """The lanes after the stripe from byte i on, with the secret from k on."""
    stripe = _words(data, i)
    keyed = stripe ^ _words(secret, k)
    return lanes + _exchanged(stripe) + (keyed & _LOW) * (keyed >> np.uint64(32))


@njit(**INLINE)
def _begun(secret, seed):
    """The lanes before the first stripe; the secret becomes that of the seed."""
    negated = _words(pointer(_NEGATED), 0)
    for k in range(0, _LENGTH, _STRIPE):
        store(secret, k, _words(pointer(_SECRET), k) + ((negated ^ seed) - negated))
    return _words(pointer(_START), 0)


@njit(**INLINE)
def _of_long(data, n, seed):
    secret, merged = room(_SECRET, 192), room(_SECRET, 64)
    lanes = _begun(secret, seed)
    last = (n - 1) // _BLOCK * _BLOCK
    for block in range(0, last, _BLOCK):
        for i in range(0, _BLOCK, _STRIPE):
            lanes = _accumulated(lanes, data, block + i, secret, i // 8)
        lanes = (lanes ^ (lanes >> np.uint64(47)) ^ _words(secret, _LENGTH - _STRIPE)) * _P32_1
    for i in range(0, (n - 1 - last) // _STRIPE * _STRIPE, _STRIPE):
        lanes = _accumulated(lanes, data, last + i, secret, i // 8)
    lanes = _accumulated(lanes, data, n - _STRIPE, secret, 121)
    store(merged, 0, lanes ^ _words(secret, 11))
    total = np.uint64(n) * _P64_1
    for k in range(0, _STRIPE, 16):
        total += _folded(_word64(merged, k), _word64(merged, k + 8))
    return _avalanche(total)


@partial(compiled, guarded=False)  # whole numbers alone
def _hash(values, seed):
    data, n = pointer(values), len(values)
    if n > 240:
        return _of_long(data, n, seed)
    if n > 16:
        return _of_medium(data, n, seed)
    return _of_short(data, n, seed)


def xxh3(values: NDArray[np.generic], seed: int | np.uint64 = 0) -> int:
    """XXH3-64 of the bytes of an array, in the order of its elements.

    >>> f"{xxh3(np.frombuffer(b'abc', np.uint8)):016x}"
    '78af5f94892f3950'
    """
    try:
        data = np.frombuffer(values, np.uint8)  # a view without a copy, as nearly all have
    except ValueError:  # strides, no elements, or a type that has no buffer
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    total: int = _hash(data, np.uint64(seed))
    return total
