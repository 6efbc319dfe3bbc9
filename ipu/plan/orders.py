"""Orders of cross-replica sums: one binary tree of replicas for each chunk of a tensor.

A tensor of n elements is cut into R chunks of ceil(n/R) elements; the last ones may be short or
empty, so no padding reaches a sum. Ring orders send a chunk around a ring of replicas: `tf_ring`
starts at the replica of the chunk's number, the others end there. With ring="interleaved" even
replicas go up the ring and odd ones come back (0 2 4 6 7 5 3 1).

| order | sum of chunk 0, R = 4 | of chunk 1 | evidence |
|---|---|---|---|
| tf_ring | 0 1 2 3 | 1 2 3 0 | DOCUMENTED: TensorFlow, ring_reducer.cc |
| clockwise_ring | 1 2 3 0 | 2 3 0 1 | DOCUMENTED: poplibs, popops Collectives |
| anticlockwise_ring | 3 2 1 0 | 0 3 2 1 | DOCUMENTED: the same |
| meet_in_middle_ring | (2 3 0) + (1) | (3 0 1) + (2) | DOCUMENTED: the same; odd R ASSUMED |
| bidirectional_ring_pair | half a chunk each way | the same | DOCUMENTED: the same |
| sequential | 0 1 2 3 | 0 1 2 3 | - |
| tree, recursive_doubling | (0 1) + (2 3) | the same | textbook; tree of other R ASSUMED |
| recursive_halving | (0 2) + (1 3) | the same | textbook |
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from functools import lru_cache, reduce
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fpsim.records.by_name import EnumByName

__all__ = [
    "Addition", "Order", "Part", "PartRange", "Ring", "Tree", "additions", "automatic", "buckets",
    "check_order", "chunks", "leaves", "leaves_of_chunks", "parts", "ranges", "ring_of", "tree",
]

#: A replica, or the sum of two trees: left + right.
Tree: TypeAlias = int | tuple["Tree", "Tree"]


class Order(EnumByName):
    """The order of the additions. AUTO chooses a ring by the bytes and R, as poplibs does.

    >>> Order.parse("TF_ring")
    <Order.TF_RING: 'tf_ring'>
    """

    AUTO = "auto"
    TF_RING = "tf_ring"
    CLOCKWISE_RING = "clockwise_ring"
    ANTICLOCKWISE_RING = "anticlockwise_ring"
    MEET_IN_MIDDLE_RING = "meet_in_middle_ring"
    BIDIRECTIONAL_RING_PAIR = "bidirectional_ring_pair"
    SEQUENTIAL = "sequential"
    TREE = "tree"
    RECURSIVE_DOUBLING = "recursive_doubling"
    RECURSIVE_HALVING = "recursive_halving"

    @classmethod
    def _refusal(cls, value: object) -> str:
        names = ", ".join(member.value for member in cls)
        return f"order={value!r} is not an order of a sum; use one of {names}"


class Ring(Enum):
    """The order of the replicas in a ring: FLAT 0 1 2 3, INTERLEAVED 0 2 3 1."""

    FLAT = "flat"
    INTERLEAVED = "interleaved"


class Part(NamedTuple):
    """Elements [start, stop) of a flat tensor, which are summed by one tree.

    size     elements of a whole chunk.
    """

    chunk: int
    start: int
    stop: int
    tree: Tree
    size: int


class PartRange(NamedTuple):
    """The elements of a part, and the order in which they are summed; see `Part`."""

    chunk: int
    start: int
    stop: int
    order: Order
    size: int


class Addition(NamedTuple):
    """One addition of a tree, in postfix order.

    number        from 0 in its tree; j of its address is chunk · R + number.
    left, right   below R: that replica; R + k: the result of addition k.
    """

    number: int
    left: int
    right: int


def chunks(n: int, replicas: int) -> tuple[tuple[int, int], ...]:
    """(start, stop) of each replica's chunk of n elements.

    >>> chunks(5, 4)
    ((0, 2), (2, 4), (4, 5), (5, 5))
    """
    if n < 0 or replicas < 1:
        raise ValueError(f"n={n}, replicas={replicas}: use 0 or more elements, 1 or more replicas")
    size = -(-n // replicas)
    return tuple((min(c * size, n), min((c + 1) * size, n)) for c in range(replicas))


def buckets(
    tensors: Sequence[tuple[Hashable, int]], buffer_size: int
) -> tuple[tuple[int, ...], ...]:
    """Indices of tensors that are summed as one: neighbours of one kind that fit the buffer.

    tensors    (kind, bytes) in the order of the variables; a kind is a format.

    >>> buckets([("half", 6), ("half", 4), ("half", 4), ("single", 1)], 8)
    ((0,), (1, 2), (3,))
    """
    groups: list[list[int]] = []
    filled = 0
    for index, (kind, size) in enumerate(tensors):
        if groups and tensors[groups[-1][0]][0] == kind and filled + size <= buffer_size:
            groups[-1].append(index)
            filled += size
        else:
            groups.append([index])
            filled = size
    return tuple(map(tuple, groups))


def ring_of(replicas: int, ring: Ring | str = Ring.FLAT) -> tuple[int, ...]:
    """Replicas in the order of the ring.

    >>> ring_of(8, "interleaved")
    (0, 2, 4, 6, 7, 5, 3, 1)
    """
    names = [r.value for r in Ring]
    if not isinstance(ring, Ring) and ring not in names:
        raise ValueError(f"ring={ring!r} is not a ring; use one of {', '.join(names)}")
    if Ring(ring) is Ring.FLAT:
        return tuple(range(replicas))
    return (*range(0, replicas, 2), *reversed(range(1, replicas, 2)))


def check_order(order: Order | str, replicas: int) -> Order:
    """The order, when it exists for that number of replicas.

    Raises    ValueError for recursive orders of a number that is not a power of two.
    """
    order = Order.parse(order)
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise TypeError(f"replicas={replicas!r} is not a number of replicas; use an integer")
    if replicas < 1:
        raise ValueError(f"replicas={replicas}: use 1 or more")
    recursive = order in (Order.RECURSIVE_DOUBLING, Order.RECURSIVE_HALVING)
    if recursive and replicas & (replicas - 1):
        raise ValueError(
            f"order={order.value!r} needs a power of two of replicas, got replicas={replicas}; "
            "use order='tree' or another number of replicas"
        )
    return order


def automatic(n_bytes: int, replicas: int) -> Order:
    """The ring that poplibs takes for a tensor of that many bytes.

    Source    poplibs, popops Collectives, pickReduceScatterMethod; one IPU for each replica.

    >>> automatic(4096, 4).value, automatic(10**8, 4).value
    ('meet_in_middle_ring', 'bidirectional_ring_pair')
    """
    if replicas <= 2:
        return Order.CLOCKWISE_RING
    met = (
        n_bytes < 1_245_184
        or (replicas > 4 and n_bytes < 4_980_736)
        or (replicas > 8 and n_bytes < 39_845_888)
        or replicas > 16
    )
    return Order.MEET_IN_MIDDLE_RING if met else Order.BIDIRECTIONAL_RING_PAIR


def _fold(replicas: Sequence[Tree]) -> Tree:
    """From the left: ((0 + 1) + 2) + 3."""
    return reduce(lambda left, right: (left, right), replicas)


def _pairs(trees: Sequence[Tree]) -> Tree:
    """Neighbours, level by level; a last one without a neighbour goes up as it is."""
    while len(trees) > 1:
        joined: list[Tree] = [(trees[i], trees[i + 1]) for i in range(0, len(trees) - 1, 2)]
        trees = joined + list(trees[len(joined) * 2 :])
    return trees[0]


def _halves(trees: Sequence[Tree]) -> Tree:
    """Replica r with r + R/2, then half that distance, down to 1."""
    while len(trees) > 1:
        half = len(trees) // 2
        trees = [(trees[i], trees[i + half]) for i in range(half)]
    return trees[0]


def _around(direction: int, first: int) -> Callable[[Sequence[int], int], Tree]:
    """Round the ring in that direction; the first is so many steps past the chunk's replica."""

    def fold(ring: Sequence[int], at: int) -> Tree:
        steps = range(first, first + len(ring))
        return _fold([ring[(at + direction * step) % len(ring)] for step in steps])

    return fold


def _meet(ring: Sequence[int], at: int) -> Tree:
    """Clockwise from floor(R/2) places behind the owner to it, and the others the other way."""
    n = len(ring)
    clockwise = [ring[(at - step) % n] for step in range(n // 2, -1, -1)]
    other = [ring[(at + step) % n] for step in range(n - n // 2 - 1, 0, -1)]
    return (_fold(clockwise), _fold(other)) if other else _fold(clockwise)


_RINGS: dict[Order, Callable[[Sequence[int], int], Tree]] = {
    Order.TF_RING: _around(1, 0),
    Order.CLOCKWISE_RING: _around(1, 1),
    Order.ANTICLOCKWISE_RING: _around(-1, 1),
    Order.MEET_IN_MIDDLE_RING: _meet,
}
_SAME_FOR_ALL: dict[Order, Callable[[Sequence[Tree]], Tree]] = {
    Order.SEQUENTIAL: _fold,
    Order.TREE: _pairs,
    Order.RECURSIVE_DOUBLING: _pairs,
    Order.RECURSIVE_HALVING: _halves,
}


@lru_cache(maxsize=1024, typed=True)
def tree(order: Order | str, replicas: int, chunk: int, ring: Ring | str = Ring.FLAT) -> Tree:
    """The additions of a chunk as nested pairs.

    Raises    ValueError for AUTO, which needs the bytes (`automatic`), and for the pair of rings,
              which has a tree for each half of a chunk (`parts`); else as `check_order`.

    >>> tree("meet_in_middle_ring", 4, 0)
    (((2, 3), 0), 1)
    """
    order = check_order(order, replicas)
    if not 0 <= chunk < replicas:
        raise ValueError(f"chunk={chunk}: use 0 … {replicas - 1} for {replicas} replicas")
    circle = ring_of(replicas, ring)
    if order in _SAME_FOR_ALL:
        return _SAME_FOR_ALL[order](range(replicas))
    if order not in _RINGS:
        advice = "automatic" if order is Order.AUTO else "parts"
        raise ValueError(f"order={order.value!r} is not one tree for a chunk; use {advice}(...)")
    return _RINGS[order](circle, circle.index(chunk))


def parts(
    order: Order | str, replicas: int, n: int, n_bytes: int, ring: Ring | str = Ring.FLAT
) -> tuple[Part, ...]:
    """Every element range of a tensor with its tree; empty ranges are left out.

    n, n_bytes    elements of the tensor, and its bytes, by which AUTO chooses.

    The pair of rings sums the first floor(ceil(n/R)/2) elements of a chunk clockwise.

    >>> [(part.start, part.stop, part.tree) for part in parts("bidirectional_ring_pair", 2, 6, 24)]
    [(0, 1, (1, 0)), (1, 3, (1, 0)), (3, 4, (0, 1)), (4, 6, (0, 1))]
    """
    rows = ranges(order, replicas, n, n_bytes)
    return tuple(
        Part(row.chunk, row.start, row.stop, tree(row.order, replicas, row.chunk, ring), row.size)
        for row in rows
    )


def ranges(order: Order | str, replicas: int, n: int, n_bytes: int) -> tuple[PartRange, ...]:
    """The element ranges of `parts`, and the order of each.

    >>> [(row.start, row.stop, row.order.value) for row in ranges("auto", 2, 5, 10)]
    [(0, 3, 'clockwise_ring'), (3, 5, 'clockwise_ring')]
    """
    order = check_order(order, replicas)
    if order is Order.AUTO:
        order = automatic(n_bytes, replicas)
    rows = []
    bounds = chunks(n, replicas)
    size = bounds[0][1] - bounds[0][0]
    half = size // 2
    for chunk, (start, stop) in enumerate(bounds):
        if order is not Order.BIDIRECTIONAL_RING_PAIR:
            rows.append(PartRange(chunk, start, stop, order, size))
            continue
        cut = min(start + half, stop)
        rows.append(PartRange(chunk, start, cut, Order.CLOCKWISE_RING, size))
        rows.append(PartRange(chunk, cut, stop, Order.ANTICLOCKWISE_RING, size))
    return tuple(row for row in rows if row.start < row.stop)


def leaves_of_chunks(
    order: Order, replicas: int, ring: Ring | str = Ring.FLAT
) -> NDArray[np.int64]:
    """Replicas of each chunk's tree from left to right: rings turn with the chunk.

    Shapes    (chunks, replicas)

    >>> leaves_of_chunks(Order.TF_RING, 3).tolist()
    [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
    """
    first = np.array(leaves(tree(order, replicas, 0, ring)))
    if order in _SAME_FOR_ALL:
        return np.broadcast_to(first, (replicas, replicas))
    circle = np.array(ring_of(replicas, ring))
    places = np.argsort(circle)
    at_leaves: NDArray[np.int64] = circle[(places[first] + places[:, None]) % replicas]
    return at_leaves


def leaves(node: Tree) -> tuple[int, ...]:
    """Replicas of a tree from left to right.

    >>> leaves(((0, 2), (1, 3)))
    (0, 2, 1, 3)
    """
    rows: list[int] = []
    ahead = [node]
    while ahead:
        node = ahead.pop()
        if isinstance(node, int):
            rows.append(node)
        else:
            ahead += [node[1], node[0]]
    return tuple(rows)


def additions(node: Tree) -> tuple[Addition, ...]:
    """The additions of a tree in postfix order: left operand, right operand, their sum.

    >>> additions((((2, 3), 0), 1))
    (Addition(number=0, left=2, right=3), Addition(number=1, left=4, right=0),
     Addition(number=2, left=5, right=1))
    """
    replicas = len(leaves(node))
    rows: list[Addition] = []
    operands: list[int] = []
    ahead: list[Tree | None] = [node]
    while ahead:
        entry = ahead.pop()
        if entry is None:
            right, left = operands.pop(), operands.pop()
            rows.append(Addition(len(rows), left, right))
            operands.append(replicas + len(rows) - 1)
        elif isinstance(entry, int):
            operands.append(entry)
        else:
            ahead += [None, entry[1], entry[0]]
    return tuple(rows)
