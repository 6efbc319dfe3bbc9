"""Sums of many arrays of one format by trees of additions, in one call.

Each part of the elements has the tree, key and numbers of its own. Values and flags are those of
`fpsim.elementwise.apply` of one addition after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import KernelCall
from fpsim.kernels.elementwise.sequence import STEP, address_of
from fpsim.kernels.elementwise.step import FLAGS_STICKY
from fpsim.kernels.elementwise.trees import run_trees
from fpsim.kernels.random.words import NO_WORDS
from fpsim.records.settings import ZERO_OR_NORMAL, Settings
from fpsim.records.types import Carrier
from fpsim.state.memory import memory_addresses
from fpsim.state.threads import run_blocks

__all__ = ["AdditionTrees", "has_tree_sums", "tree_sums"]

_NO_FLAGS = np.zeros(1, np.uint8)

#: Elements that are added at least before a second thread is worth its start.
_SMALLEST = 1 << 15


class AdditionTrees(NamedTuple):
    """Which arrays are added where; all trees have one shape.

    leaves      (parts, arrays): the arrays at the leaves, from left to right.
    additions   (arrays - 1, 3): operands and result of each, in order: leaf i as i, room r as
                -1 - r. The last one's result is the sum.
    n_rooms     how many sums wait at the same time.
    parts       (parts, 3): first element, end, index of the first one in the whole operation.
    """

    leaves: NDArray[np.int64]
    additions: NDArray[np.int64]
    n_rooms: int
    parts: NDArray[np.int64]


def has_tree_sums(settings: Settings) -> bool:
    """Whether additions under these settings run in one call."""
    return (
        not settings.native and settings.subnormals != ZERO_OR_NORMAL
        and settings.format.carrier == np.float32
    )


def tree_sums(
    summands: Sequence[Carrier], trees: AdditionTrees, settings: Settings, seeds: Sequence[int],
    numbers: Sequence[int],
) -> tuple[Carrier, list[int]]:
    """The sum of flat arrays of one length, and the flags of each part.

    seeds, numbers   of each part: the key of Philox, and the number of its first addition.

    Shapes    two summands or more, (n,); the sum has that shape.
    Rounding  each addition once, as the settings say.
    Source    docs/semantics.md §2.

    >>> from fpsim.records.formats import BINARY16
    >>> trees = AdditionTrees(np.array([[0, 1]]), np.array([[0, 1, -1]]), 1, np.array([[0, 2, 0]]))
    >>> x = np.float32([1, 2048])
    >>> total, flags = tree_sums([x, np.ones_like(x)], trees, Settings(BINARY16), [0], [0])
    >>> total.tolist(), flags
    ([2.0, 2048.0], [1])
    """
    ready = [np.ascontiguousarray(x) for x in summands]
    inputs = np.array(memory_addresses(ready), np.int64)
    total = np.empty(ready[0].size, np.float32)
    call, address = _loop_of(settings)
    n_parts = len(trees.parts)
    flags = np.zeros(n_parts, np.int64)
    most = int((trees.parts[:, 1] - trees.parts[:, 0]).max(initial=1))
    keys, firsts = np.array(seeds, np.uint64), np.array(numbers, np.uint64)

    def work(begin: int, end: int) -> int:
        rooms = np.empty((trees.n_rooms, min(most, STEP)), np.float32)
        run_trees(
            address, call.constants, inputs, trees.leaves, trees.additions, trees.parts, keys,
            firsts, total, rooms, _NO_FLAGS, NO_WORDS, flags, begin, end,
        )
        return 0

    run_blocks(work, 0, n_parts, max(1, _SMALLEST // (most * len(ready))))
    raised: list[int] = flags.tolist()
    return total, raised


@lru_cache(maxsize=64)
def _loop_of(settings: Settings) -> tuple[KernelCall, int]:
    """The loop of an addition and its address."""
    call: Any = KernelCall("add", settings, 4, FLAGS_STICKY, supplied=False)
    return call, address_of(call.loop, is_wide=call.constants.dtype == np.uint64)
