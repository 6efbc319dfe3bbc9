"""The counter-based generator Philox4x32-10, for vectors of counters and for one.

Source    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Random123).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.arithmetic import upper_words
from fpsim.kernels.lanes.formula import formula, instruction
from fpsim.kernels.lanes.vectors import Lanes, pairs_apart, pairs_joined

__all__ = [
    "AT_ONCE", "M0", "M1", "philox", "philox_block", "philox_common", "philox_end", "philox_others",
    "philox_start",
]

M0, M1 = 0xD2511F53, 0xCD9E8D57
W0, W1 = 0x9E3779B9, 0xBB67AE85


_LOW, _ROUNDS = 0xFFFFFFFF, 10

#: Vectors of counters whose rounds take turns: each round waits for its own products, and the
#: processor looks no further ahead than the rounds of one vector.
AT_ONCE = 4


def _rounds(counters, k0, k1, rounds):
    """The first rounds in lanes of 64 bits, whose upper halves take no part and hold anything.

    The counters take turns, so that the processor has something to do while one waits.
    """
    for _ in range(rounds):
        products = [((c0 & _LOW) * M0, (c2 & _LOW) * M1) for c0, _, c2, _ in counters]
        counters = [
            (upper_words(p1) ^ c1 ^ k0, p1, upper_words(p0) ^ c3 ^ k1, p0)
            for (p0, p1), (_, c1, _, c3) in zip(products, counters, strict=True)
        ]
        k0, k1 = k0 + W0, k1 + W1
    return counters


def _even_and_odd(counters, keys, rounds):
    """The first rounds of the even lanes and of the odd ones of each counter.

    The processor multiplies the even words of a vector. The odd ones are shifted into their place
    once, before the first round.
    """
    halves = []
    for counter in counters:
        even = [pairs_joined(c) for c in counter]
        halves += [even, [upper_words(c) for c in even]]
    none = halves[0][0] ^ halves[0][0]
    after = _rounds(halves, *(none + k for k in keys), rounds)
    return tuple(zip(after[::2], after[1::2], strict=True))


def _joined(even, odd):
    """Words of even and odd lanes in their places."""
    return pairs_apart((even & _LOW) | (odd << 32))


@formula
def philox(c0, c1, c2, c3, k0, k1):
    """Ten rounds on lanes of counters; k0 and k1 are scalars."""
    ((even, odd),) = _even_and_odd([(c0, c1, c2, c3)], (k0, k1), _ROUNDS)
    return tuple(_joined(*pair) for pair in zip(even, odd, strict=True))


@formula
def philox_start(c0, c1, c2, c3, k0, k1):
    """All rounds but two of the counters c0 and those that follow, for `philox_end`.

    c0 is a vector of neighbours; `AT_ONCE` such vectors have states.
    """
    counters = [(c0 + i * c0.type.n, c1, c2, c3) for i in range(AT_ONCE)]
    return _even_and_odd(counters, (k0, k1), _ROUNDS - 2)


@formula
def philox_end(states, k0, k1, which):
    """One word of four of each state after two rounds more, of which it needs less than half."""
    return tuple(_last_word(*state, k0, k1, which) for state in states)


def _last_word(even, odd, k0, k1, which):
    (k0, k1), (m0, m1), order = (k0, k1), (M0, M1), (0, 2, 3)
    w0, w1 = W0, W1
    if which >= 2:  # the same with the names of both halves exchanged
        (k0, k1), (m0, m1), order, (w0, w1) = (k1, k0), (M1, M0), (2, 0, 1), (W1, W0)
    none = even[0] ^ even[0]
    key = none + k1 + w1 * (_ROUNDS - 2)
    (even, even_left, even_right), (odd, odd_left, odd_right) = (
        [half[i] for i in order] for half in (even, odd)
    )
    even = upper_words((even & _LOW) * m0) ^ even_right ^ key
    odd = upper_words((odd & _LOW) * m0) ^ odd_right ^ key
    if which % 2 == 1:
        return _joined(even, odd) * m1
    even, odd = (even & _LOW) * m1, (odd & _LOW) * m1
    upper = pairs_apart((upper_words(even) & _LOW) | (odd & ~(none + _LOW)))
    left = _joined(even_left, odd_left) * m1
    return upper ^ left ^ ((left ^ left) + k0 + w0 * (_ROUNDS - 1))


@instruction
def _upper_halves(typingctx: Any, even: Any, odd: Any) -> Any:
    """The upper halves of two vectors of 64-bit lanes, those of the first in even places."""
    return _halves(even, upper=1)


@instruction
def _lower_halves(typingctx: Any, even: Any, odd: Any) -> Any:
    """The lower halves of two vectors of 64-bit lanes, those of the first in even places."""
    return _halves(even, upper=0)


def _halves(lanes: Any, upper: int) -> Any:
    words = Lanes("u", 32, 2 * lanes.n)
    places = [i // 2 * 2 + upper + i % 2 * words.n for i in range(words.n)]
    index = ir.Constant(ir.VectorType(ir.IntType(32), words.n), places)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        even, odd = (builder.bitcast(x, words.vector) for x in args)
        return builder.shuffle_vector(even, odd, index)

    return words(lanes, lanes), codegen


@formula
def philox_common(c0, n1, a1, k0, k1):
    """What sixteen counters (c0, c1, n0, n1) have in common for all c1; see `philox_others`.

    In the first two rounds half of the state depends on c0 alone, the other half on c1 alone.
    Scalars of 64 bits: n1, the product a1 of n0 and the second multiplier, and the key.
    """
    state = []
    even = pairs_joined(c0)
    key0, key1 = ((even ^ even) + k for k in (k0, k1))
    for half in (even, upper_words(even)):
        p = (half & _LOW) * M0
        q = ((upper_words(p) ^ n1 ^ key1) & _LOW) * M1
        r = ((upper_words(q) ^ a1 ^ (key0 + W0)) & _LOW) * M0
        state += [p ^ (key1 + W1), q ^ (key0 + 2 * W0), upper_words(r) ^ (key1 + 2 * W1), r]
    return tuple(pairs_apart(x) for x in state)


@formula
def philox_others(state, upper, lower, k0, k1):
    """The four words of the counters of `philox_common` with one c1.

    `upper` and `lower` are halves of a product: the first multiplier times what c1 is after the
    first round.
    """
    halves = []
    for i in (0, 4):
        p, q, r, s = (pairs_joined(x) for x in state[i : i + 4])
        product = ((p ^ upper) & _LOW) * M1
        keys = [(p ^ p) + k + 3 * w for k, w in ((k0, W0), (k1, W1))]
        halves.append((upper_words(product) ^ q, product, r ^ lower, s))
    halves = _rounds(halves, *keys, _ROUNDS - 4)
    # The last round, straight to the places of the words.
    even, odd = halves
    p, q = [[(half[i] & _LOW) * m for half in halves] for i, m in ((0, M0), (2, M1))]
    key0, key1 = ((state[0] ^ state[0]) + k + 9 * w for k, w in ((k0, W0), (k1, W1)))
    return (
        _upper_halves(*q) ^ _lower_halves(even[1], odd[1]) ^ key0, _lower_halves(*q),
        _upper_halves(*p) ^ _lower_halves(even[3], odd[3]) ^ key1, _lower_halves(*p),
    )


@njit(**INLINE)
def _philox_one(c0, c1, c2, c3, k0, k1):
    """The same for one counter, in scalars of 64 bits that hold 32."""
    low = np.uint64(0xFFFFFFFF)
    for r in range(10):
        p0, p1 = c0 * np.uint64(M0), c2 * np.uint64(M1)
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ k0, p1 & low, (p0 >> np.uint64(32)) ^ c3 ^ k1, p0 & low,
        )
        k0, k1 = (k0 + np.uint64(W0)) & low, (k1 + np.uint64(W1)) & low
    return c0, c1, c2, c3


@compiled
def _philox_block(c0, c1, c2, c3, k0, k1):
    return _philox_one(c0, c1, c2, c3, k0, k1)


def philox_block(c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> tuple[int, ...]:
    """The four words of one Philox4x32-10 block."""
    words = _philox_block(*(np.uint64(v) for v in (c0, c1, c2, c3, k0, k1)))
    return tuple(int(w) for w in words)
