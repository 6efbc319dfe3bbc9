"""Sums over replicas whose additions run in one call.

What comes out is what the additions give one after the other, each on the device of its chunk's
replica: values, flags, cycles and numbers. Where something looks at each addition (counts, traps),
or devices differ, there is no such call.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fpsim.array import Array
from fpsim.elementwise.tree_sums import AdditionTrees, has_tree_sums, tree_sums
from fpsim.records.types import Carrier
from ipu.learn.address import OPERATIONS, Numbering, Region, address
from ipu.machine.vector import operation_loops
from ipu.ops.in_one_call import may_join
from ipu.plan.orders import (
    Addition,
    Order,
    Ring,
    additions,
    leaves,
    leaves_of_chunks,
    ranges,
    tree,
)

__all__ = ["sum_in_one_call"]


class _ChunkTrees(NamedTuple):
    """The trees of a tensor's chunks, and of each part its chunk and its elements."""

    trees: AdditionTrees
    chunks: tuple[int, ...]
    sizes: tuple[int, ...]


def sum_in_one_call(
    tensors: Sequence[Array], numberings: Sequence[Numbering], cell: int, order: Order | str,
    ring: Ring | str,
) -> Carrier | None:
    """The sum of a tensor of each replica, flat; None where each addition has to run alone.

    cell      whose random bits the additions draw: the number of the variable.
    """
    replicas, first = len(tensors), tensors[0]
    if not 2 <= replicas <= replicas**2 <= OPERATIONS or not first.size:
        return None
    devices = [numbering.device for numbering in numberings]
    if not all(map(may_join, devices)) or any(x.of_replica is None for x in numberings):
        return None
    if any(device.counts is not None for device in devices):
        return None
    cores = [device.context(first.format).core for device in devices]
    settings = cores[0].settings
    if not has_tree_sums(settings) or any(
        core.settings is not settings and core.settings != settings for core in cores
    ):
        return None
    layout = _layout(order, replicas, first.size, first.storage_bytes, ring)
    sources = [numbering.source_of(Region.REDUCE) for numbering in numberings]
    bases = [address(numbering.step, Region.REDUCE, cell, 0) for numbering in numberings]
    total, flags = tree_sums(
        [x.carrier.reshape(-1) for x in tensors], layout.trees, settings,
        [sources[chunk].seed or 0 for chunk in layout.chunks],
        [bases[chunk] + chunk * replicas for chunk in layout.chunks],
    )
    cycles, elements = operation_loops(first.format)["add"]
    for chunk, size, raised in zip(layout.chunks, layout.sizes, flags, strict=True):
        cores[chunk].raise_flags(raised)
        devices[chunk].vector_cycles += (replicas - 1) * cycles * -(-size // elements)
        last = chunk * replicas + replicas - 2
        numberings[chunk].reach(Region.REDUCE, cell, last + settings.rounding.stochastic)
    return total


@lru_cache(maxsize=64)
def _layout(
    order: Order | str, replicas: int, n: int, n_bytes: int, ring: Ring | str
) -> _ChunkTrees:
    """Of the trees of `ipu.plan.orders.parts`, which have one shape."""
    rows = ranges(order, replicas, n, n_bytes)
    at_leaves = {row.order: leaves_of_chunks(row.order, replicas, ring) for row in rows[:2]}
    shape = tree(rows[0].order, replicas, 0, ring)
    in_rooms, n_rooms = _in_rooms(additions(shape), leaves(shape))
    places = [(row.start, row.stop, row.start - row.chunk * row.size) for row in rows]
    trees = AdditionTrees(
        np.array([at_leaves[row.order][row.chunk] for row in rows]), np.array(in_rooms), n_rooms,
        np.array(places),
    )
    sizes = tuple(row.stop - row.start for row in rows)
    return _ChunkTrees(trees, tuple(row.chunk for row in rows), sizes)


def _in_rooms(
    in_order: Sequence[Addition], at_leaves: Sequence[int]
) -> tuple[list[tuple[int, int, int]], int]:
    """Additions on places of leaves and rooms, and how many rooms they take.

    In postfix order the sums that wait are a stack: a result takes the place of the first of its
    operands that is a sum, or a new one on top.

    >>> _in_rooms((Addition(0, 1, 0), Addition(1, 2, 3), Addition(2, 4, 5)), (1, 0, 2, 3))
    ([(0, 1, -1), (2, 3, -2), (-1, -2, -1)], 2)
    """
    places = {replica: leaf for leaf, replica in enumerate(at_leaves)}
    rows, n_waiting, n_rooms = [], 0, 1
    for addition in in_order:
        left, right = places[addition.left], places[addition.right]
        n_waiting += 1 - (left < 0) - (right < 0)
        n_rooms = max(n_rooms, n_waiting)
        places[len(at_leaves) + addition.number] = -n_waiting
        rows.append((left, right, -n_waiting))
    return rows, n_rooms
