"""xoroshiro128aox in Python's integers, from the published listing and the ruled dealing.

Source    Hanlon, arXiv 2203.04058; docs/semantics.md §2.
"""

from __future__ import annotations

from collections.abc import Sequence

MASK = (1 << 64) - 1

State = tuple[int, int]


def rotl(x: int, k: int) -> int:
    return (x << k | x >> (64 - k)) & MASK


def draws(s0: int, s1: int, n: int) -> tuple[list[int], State]:
    """n draws of 64 bits and the state after them."""
    words = []
    for _ in range(n):
        sx, sa = s0 ^ s1, s0 & s1
        words.append(sx ^ (rotl(sa, 1) | rotl(sa, 2)))
        s0, s1 = rotl(s0, 55) ^ sx ^ (sx << 14 & MASK), rotl(sx, 36)
    return words, (s0, s1)


def lanes(state: State, n: int) -> tuple[list[int], State]:
    """n numbers of 16 bits, the lowest digits of a draw first, and the state after them."""
    words, after = draws(*state, -(-n // 4))
    return [word >> 16 * i & 0xFFFF for word in words for i in range(4)][:n], after


def dealt(
    states: Sequence[Sequence[State]], n: int, places: int = 1
) -> tuple[list[list[int]], list[list[State]]]:
    """Numbers for n elements in so many places, and the states after them.

    Element i belongs to the group i div B with B = 4 ceil(n / 4T); inside its block it belongs to
    vector v, and so to the member v mod W. Each member is a stream of its own.
    """
    groups, members = len(states), len(states[0])
    block = 4 * -(-n // (4 * groups))
    elements: dict[tuple[int, int], list[int]] = {}
    for i in range(n):
        owner = i // block, i % block // 4 % members
        elements.setdefault(owner, []).append(i)
    numbers = [[-1] * n for _ in range(places)]
    after = [list(group) for group in states]
    for (group, member), indices in elements.items():
        stream, after[group][member] = lanes(states[group][member], places * len(indices))
        for place in range(places):
            for j, i in enumerate(indices):
                numbers[place][i] = stream[place * len(indices) + j]
    return numbers, after
