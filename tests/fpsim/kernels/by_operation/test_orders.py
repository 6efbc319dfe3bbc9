"""Steps of every order against its definition, with places, over many lengths (exhaustive)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.by_operation import orders
from fpsim.kernels.by_operation.orders import MOST_STEPS, N_SLOTS, TOTAL, tile_steps
from fpsim.kernels.by_operation.rows import TILE
from fpsim.kernels.compiling import compiled


@compiled
def steps_of(steps, order, begin, m, n, block):
    return tile_steps(steps, order, begin, m, n, block)


def run(order, n, block=1):
    """The sum as a tree of texts, and the starts of the right operands of its additions."""
    slots, steps = ["0"] * N_SLOTS, np.empty((MOST_STEPS, 5), np.int64)
    starts = []
    for begin in range(0, n, TILE):
        m = min(TILE, n - begin)
        slots[:m] = [str(begin + k) for k in range(m)]
        for kind, target, left, right, start in steps[: steps_of(steps, order, begin, m, n, block)]:
            if kind == orders.COPIED:
                slots[target] = slots[right]
                continue
            sign = "-" if kind == orders.SUBTRACTED else "+"
            slots[target] = f"({slots[left]}{sign}{slots[right]})"
            starts.append(int(start))
    return slots[TOTAL], starts


def chain(terms):
    text = terms[0]
    for term in terms[1:]:
        text = f"({text}+{term})"
    return text


def pairwise(first, n):
    if n == 1:
        return str(first)
    half = 1 << (n - 1).bit_length() - 1
    return f"({pairwise(first, half)}+{pairwise(first + half, n - half)})"


LENGTHS = [*range(1, 20), TILE - 1, TILE, TILE + 1, 2 * TILE, 2 * TILE + 3, 5 * TILE - 2]


@pytest.mark.parametrize("n", LENGTHS)
def test_each_order_adds_what_it_says(n):
    elements = [str(j) for j in range(n)]
    tree, starts = run(orders.SEQUENTIAL, n)
    assert (tree, starts) == (chain(elements), list(range(1, n)))
    tree, starts = run(orders.PAIRWISE, n)
    assert (tree, sorted(starts)) == (pairwise(0, n), list(range(1, n)))
    for block in (1, 2, 3, 8, TILE, TILE + 5, n):
        tree, starts = run(orders.BLOCKED, n, block)
        inside = [chain(elements[j : j + block]) for j in range(0, n, block)]
        assert (tree, sorted(starts)) == (chain(inside), list(range(1, n))), block


@pytest.mark.parametrize("n", [2, 3, 4])
def test_kahans_compensation(n):
    s, c, wanted = "0", "0", []
    for j in range(1, n):
        y = f"({j}-{c})"
        t = f"({s}+{y})"
        c = f"(({t}-{s})-{y})"
        s = t
        wanted += [4 * (j - 1) + 1 + q for q in range(4)]
    # An element and the first c are both zeros here; their texts are the same.
    tree, starts = run(orders.KAHAN, n)
    assert (tree, starts) == (s, wanted)


def test_the_pairwise_tree_adds_what_lies_right_of_a_start_at_that_place():
    for n in LENGTHS:
        for left, right, start in additions(n):
            assert left[1] == right[0] == start


def additions(n):
    """Spans of both operands of each pairwise addition."""
    spans = {}
    slots, steps = [None] * N_SLOTS, np.empty((MOST_STEPS, 5), np.int64)
    for begin in range(0, n, TILE):
        m = min(TILE, n - begin)
        slots[:m] = [(begin + k, begin + k + 1) for k in range(m)]
        count = steps_of(steps, orders.PAIRWISE, begin, m, n, 1)
        for kind, target, left, right, start in steps[:count]:
            if kind == orders.COPIED:
                slots[target] = slots[right]
                continue
            spans[int(start)] = slots[left], slots[right], int(start)
            slots[target] = slots[left][0], slots[right][1]
    return list(spans.values())
