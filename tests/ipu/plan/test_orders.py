"""Orders of cross-replica sums: published tables (golden), every replica once (law)."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu.plan.orders import (
    Order,
    Ring,
    additions,
    automatic,
    buckets,
    check_order,
    chunks,
    leaves,
    parts,
    ring_of,
    tree,
)

ONE_TREE = [o for o in Order if o not in (Order.AUTO, Order.BIDIRECTIONAL_RING_PAIR)]


def fold(*replicas):
    node = replicas[0]
    for replica in replicas[1:]:
        node = (node, replica)
    return node


def binary16_sum(node, values):
    """The sum of a tree by numpy, which rounds every addition to nearest even."""
    if isinstance(node, int):
        return values[node]
    return np.float16(binary16_sum(node[0], values) + binary16_sum(node[1], values))


@pytest.mark.parametrize(
    ("order", "first", "second"),
    [
        ("tf_ring", fold(0, 1, 2, 3), fold(1, 2, 3, 0)),
        ("clockwise_ring", fold(1, 2, 3, 0), fold(2, 3, 0, 1)),
        ("anticlockwise_ring", fold(3, 2, 1, 0), fold(0, 3, 2, 1)),
        ("meet_in_middle_ring", (fold(2, 3, 0), 1), (fold(3, 0, 1), 2)),
        ("sequential", fold(0, 1, 2, 3), fold(0, 1, 2, 3)),
        ("tree", ((0, 1), (2, 3)), ((0, 1), (2, 3))),
        ("recursive_doubling", ((0, 1), (2, 3)), ((0, 1), (2, 3))),
        ("recursive_halving", ((0, 2), (1, 3)), ((0, 2), (1, 3))),
    ],
)
def test_trees_of_four_replicas(order, first, second):
    assert tree(order, 4, 0) == first
    assert tree(order, 4, 1) == second


#: x_0 = 1, x_1 … x_3 = 2^-11 in binary16, to nearest: the codes of four chunks.
KNOWN_SUMS = [
    ("sequential", "3c00 3c00 3c00 3c00"),
    ("tf_ring", "3c00 3c02 3c02 3c00"),
    ("clockwise_ring", "3c02 3c02 3c00 3c00"),
    ("meet_in_middle_ring", "3c02 3c00 3c00 3c02"),
    ("tree", "3c01 3c01 3c01 3c01"),
    ("recursive_doubling", "3c01 3c01 3c01 3c01"),
    ("recursive_halving", "3c01 3c01 3c01 3c01"),
]


@pytest.mark.parametrize(("order", "codes"), KNOWN_SUMS)
def test_one_and_three_half_ulps_in_binary16(order, codes):
    values = np.array([1, 2**-11, 2**-11, 2**-11], np.float16)
    sums = [binary16_sum(tree(order, 4, chunk), values) for chunk in range(4)]
    assert " ".join(f"{value.view(np.uint16):04x}" for value in sums) == codes


@pytest.mark.parametrize(
    ("replicas", "chunk", "arms"),
    [
        (2, 1, fold(0, 1)),
        (3, 0, (fold(2, 0), 1)),
        (5, 1, (fold(4, 0, 1), fold(3, 2))),
        (6, 0, (fold(3, 4, 5, 0), fold(2, 1))),
        (8, 7, (fold(3, 4, 5, 6, 7), fold(2, 1, 0))),
    ],
)
def test_two_arms_of_a_ring_meet_at_the_chunks_replica(replicas, chunk, arms):
    assert tree("meet_in_middle_ring", replicas, chunk) == arms


def test_larger_trees():
    assert tree("recursive_halving", 8, 3) == (((0, 4), (2, 6)), ((1, 5), (3, 7)))
    assert tree("recursive_doubling", 8, 3) == (((0, 1), (2, 3)), ((4, 5), (6, 7)))
    assert tree("tree", 3, 0) == ((0, 1), 2)
    assert tree("tree", 5, 0) == (((0, 1), (2, 3)), 4)
    assert tree("tree", 7, 0) == (((0, 1), (2, 3)), ((4, 5), 6))


def test_interleaved_rings_come_back_over_the_odd_replicas():
    assert ring_of(4, "interleaved") == (0, 2, 3, 1)
    assert ring_of(8, Ring.INTERLEAVED) == (0, 2, 4, 6, 7, 5, 3, 1)
    assert ring_of(5, "interleaved") == (0, 2, 4, 3, 1)
    assert tree("clockwise_ring", 4, 0, "interleaved") == fold(2, 3, 1, 0)
    assert tree("clockwise_ring", 4, 1, "interleaved") == fold(0, 2, 3, 1)
    assert tree("anticlockwise_ring", 4, 3, "interleaved") == fold(2, 0, 1, 3)
    assert tree("tf_ring", 4, 3, "interleaved") == fold(3, 1, 0, 2)
    assert tree("meet_in_middle_ring", 4, 0, "interleaved") == (fold(3, 1, 0), 2)
    assert tree("sequential", 4, 3, "interleaved") == fold(0, 1, 2, 3)


@given(st.integers(0, 200), st.integers(1, 40))
def test_chunks_cover_a_tensor_once(n, replicas):
    ranges = chunks(n, replicas)
    assert len(ranges) == replicas
    assert [i for start, stop in ranges for i in range(start, stop)] == list(range(n))
    size = -(-n // replicas)
    complete = n // size if size else 0
    assert all(stop - start == size for start, stop in ranges[:complete])


def test_the_last_chunks_are_short_or_empty():
    assert chunks(5, 4) == ((0, 2), (2, 4), (4, 5), (5, 5))
    assert chunks(8, 4) == ((0, 2), (2, 4), (4, 6), (6, 8))
    assert chunks(0, 2) == ((0, 0), (0, 0))


@given(st.sampled_from(list(Order)), st.integers(1, 33), st.integers(0, 300), st.sampled_from(Ring))
def test_every_element_sums_every_replica_once(order, replicas, n, ring):
    if order in (Order.RECURSIVE_DOUBLING, Order.RECURSIVE_HALVING):
        replicas = 1 << replicas % 6
    rows = parts(order, replicas, n, 4 * n, ring)
    assert [i for part in rows for i in range(part.start, part.stop)] == list(range(n))
    for part in rows:
        assert sorted(leaves(part.tree)) == list(range(replicas))
        start, stop = chunks(n, replicas)[part.chunk]
        assert start <= part.start < part.stop <= stop


@given(st.sampled_from(ONE_TREE), st.integers(1, 33), st.integers(0, 32), st.sampled_from(Ring))
def test_additions_stand_behind_their_operands(order, replicas, chunk, ring):
    if order in (Order.RECURSIVE_DOUBLING, Order.RECURSIVE_HALVING):
        replicas = 1 << replicas % 6
    node = tree(order, replicas, chunk % replicas, ring)
    rows = additions(node)
    assert [row.number for row in rows] == list(range(replicas - 1))
    trees = list(range(replicas))
    used = []
    for row in rows:
        used += [row.left, row.right]
        trees.append((trees[row.left], trees[row.right]))
    assert trees[-1] == node
    assert sorted(used) == list(range(2 * replicas - 2))


@given(st.sampled_from([Order.CLOCKWISE_RING, Order.ANTICLOCKWISE_RING]), st.integers(2, 20),
       st.data())
def test_rings_end_at_the_chunks_replica_and_tensorflows_starts_there(order, replicas, data):
    chunk = data.draw(st.integers(0, replicas - 1))
    ring = data.draw(st.sampled_from(Ring))
    assert leaves(tree(order, replicas, chunk, ring))[-1] == chunk
    assert leaves(tree("tf_ring", replicas, chunk, ring))[0] == chunk
    there = leaves(tree("clockwise_ring", replicas, chunk, ring))
    back = leaves(tree("anticlockwise_ring", replicas, chunk, ring))
    assert there[:-1] == back[-2::-1]


def test_a_pair_of_rings_halves_each_chunk_by_the_size_of_a_full_one():
    rows = parts("bidirectional_ring_pair", 4, 21, 84)
    assert [(p.chunk, p.start, p.stop) for p in rows] == [
        (0, 0, 3), (0, 3, 6), (1, 6, 9), (1, 9, 12), (2, 12, 15), (2, 15, 18), (3, 18, 21),
    ]
    assert rows[0].tree == fold(1, 2, 3, 0)
    assert rows[1].tree == fold(3, 2, 1, 0)
    assert rows[-1].tree == fold(0, 1, 2, 3)
    odd = parts("bidirectional_ring_pair", 2, 10, 40)
    assert [(p.start, p.stop) for p in odd] == [(0, 2), (2, 5), (5, 7), (7, 10)]


@pytest.mark.parametrize(
    ("n_bytes", "replicas", "order"),
    [
        (1, 1, "clockwise_ring"),
        (10**9, 2, "clockwise_ring"),
        (1_245_183, 3, "meet_in_middle_ring"),
        (1_245_184, 4, "bidirectional_ring_pair"),
        (4_980_735, 5, "meet_in_middle_ring"),
        (4_980_736, 8, "bidirectional_ring_pair"),
        (39_845_887, 9, "meet_in_middle_ring"),
        (39_845_888, 16, "bidirectional_ring_pair"),
        (10**12, 17, "meet_in_middle_ring"),
    ],
)
def test_the_automatic_ring_goes_by_bytes_and_replicas(n_bytes, replicas, order):
    assert automatic(n_bytes, replicas).value == order
    assert parts("auto", replicas, 64, n_bytes) == parts(order, replicas, 64, n_bytes)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: check_order("recursive_halving", 3),
            "order='recursive_halving' needs a power of two of replicas, got replicas=3; "
            "use order='tree' or another",
        ),
        (lambda: tree("recursive_doubling", 6, 0), "got replicas=6"),
        (lambda: tree("tree", 4, 4), "chunk=4: use 0 … 3 for 4 replicas"),
        (
            lambda: tree("auto", 4, 0),
            "order='auto' is not one tree for a chunk; use automatic(...)",
        ),
        (lambda: tree("bidirectional_ring_pair", 4, 0), "is not one tree for a chunk; use parts(."),
        (
            lambda: check_order("star", 4),
            "order='star' is not an order of a sum; use one of auto, ",
        ),
        (lambda: check_order("tree", 0), "replicas=0: use 1 or more"),
        (lambda: ring_of(4, "double"), "ring='double' is not a ring; use one of flat, interleaved"),
        (lambda: chunks(-1, 2), "n=-1, replicas=2: use 0 or more elements, 1 or more replicas"),
    ],
)
def test_impossible_orders_are_refused(call, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        call()


def test_tensors_share_a_buffer_in_the_order_of_the_variables():
    sizes = [("half", 6), ("half", 4), ("half", 4), ("single", 1), ("half", 1), ("half", 99)]
    assert buckets(sizes, 0) == ((0,), (1,), (2,), (3,), (4,), (5,))
    assert buckets(sizes, 8) == ((0,), (1, 2), (3,), (4,), (5,))
    assert buckets(sizes, 14) == ((0, 1, 2), (3,), (4,), (5,))
    assert buckets([], 8) == ()


def test_one_replica_needs_no_addition():
    for order in ONE_TREE:
        assert tree(order, 1, 0) == 0
        assert additions(0) == ()
    assert check_order(Order.RECURSIVE_HALVING, 64) is Order.RECURSIVE_HALVING


def test_the_largest_number_of_replicas_fits():
    rows = additions(tree("tf_ring", 1024, 5))
    assert len(rows) == 1023
    assert rows[-1].right == 4
