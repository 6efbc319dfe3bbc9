"""Sums whose summands are spread over parts of at most 64, round after round.

The n summands of an output form P = ⌈n/64⌉ parts of ⌈n/P⌉ neighbours, the last one perhaps shorter.
Each part is added one after the other; the sums of the parts are the summands of the next round, by
the same rule, until one is left. So the order depends on n alone, and the error is at most
64 ⌈log₆₄ n⌉ u Σ|x|.

Source    docs/semantics.md §6 (sums of the device).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from fpsim.kernels.by_operation.native_sums import outer_sums
from fpsim.kernels.by_operation.sums import COLUMN_BLOCK
from fpsim.kernels.elementwise.step import FLAGS_EACH
from fpsim.products.jobs.job import to_read
from fpsim.products.native_sums import is_native
from fpsim.products.sums import AxisSum, Sums
from fpsim.records.settings import Settings
from fpsim.records.types import Axis, Carrier, ElementFlags
from fpsim.state.publish import fold, publish
from fpsim.state.state import State

__all__ = ["PART", "SpreadSum", "parts_of", "sums_of_binary64"]

#: Summands of a part, at most.
PART = 64
#: Numbers that are moved at a time, so that rows become columns within the cache.
_BLOCK = 1 << 16

#: Sums over the third axis of (outer, parts, elements, inner), with the flags of each; None where
#: an engine may not have them.
_Chains = Callable[[Carrier], "tuple[Carrier, ElementFlags] | None"]


def parts_of(n: int) -> tuple[int, int]:
    """Summands of a part, and how many parts have so many; what is left is one part more.

    >>> parts_of(64), parts_of(100), parts_of(65), parts_of(130)
    ((64, 1), (50, 2), (33, 1), (44, 2))
    """
    length = -(-n // -(-n // PART))
    return length, n // length


class SpreadSum:
    """The sum of an array over axes, spread; checked when it is made.

    Shapes    the axes vanish; over several, elements come in C order.
    Flags     those of all additions.
    """

    def __init__(self, values: Carrier, axis: Axis) -> None:
        #: Shapes and what traps show are those of a chain, which it is of up to 64 summands.
        self._chain = AxisSum(values, axis, "sequential", 1, divide=False)
        self._n = math.prod(values.shape[a] for a in self._chain.axes)

    def run(self, state: State) -> Carrier:
        """The result, published."""
        if self._n <= PART:
            return self._chain.run(state, None)
        native = self.run_native(state)
        if native is not None:
            return native
        result = self._published(state, partial(_chains, state.settings))
        assert result is not None
        return result

    def run_native(self, state: State, *, squared: bool = False) -> Carrier | None:
        """The result by the processor's own additions, published; None where it may differ.

        squared   the sum of squares, which must be numbers of binary32.
        """
        if not is_native(state.settings, "sequential"):
            return None
        if self._n <= PART:
            return self._chain.run_native(state, squared=squared)
        return self._published(state, _native_chains, first=_native_squares if squared else None)

    def _published(
        self, state: State, chains: _Chains, first: _Chains | None = None
    ) -> Carrier | None:
        """`first` adds in the first round, `chains` in the others."""
        total = _spread(_as_planes(self._chain.values, self._chain.axes), chains, first or chains)
        if total is None:
            return None
        sums, flags = (part.reshape(self._chain.shape) for part in total)
        return publish(
            state, self._chain.name, sums, fold(flags), flags if state.watched else None,
            self._chain.elements, None,
        )  # fmt: skip


def sums_of_binary64(values: Carrier, axes: tuple[int, ...]) -> Carrier:
    """Sums over axes by the processor's additions of binary64.

    >>> sums_of_binary64(np.ones((2, 100)), (1,)).tolist()
    [100.0, 100.0]
    """
    planes = _as_planes(values, axes)
    if planes.shape[1] == 0:
        sums: Carrier = np.zeros((planes.shape[0], planes.shape[2]))
    else:
        total = _spread(planes, _chains_of_binary64, _chains_of_binary64)
        assert total is not None
        sums, _ = total
    return sums.reshape([n for a, n in enumerate(values.shape) if a not in axes])


def _as_planes(values: Carrier, axes: tuple[int, ...]) -> Carrier:
    """Values as (outer, summands of an output, inner)."""
    axes = tuple(sorted(axes))
    left = [a for a in range(values.ndim) if a not in axes]
    if not axes or axes[-1] - axes[0] >= len(axes):  # other axes stand between
        values = values.transpose((*axes, *left))
        axes = tuple(range(len(axes)))
    first, shape = axes[0] if axes else 0, values.shape
    last = first + len(axes)
    return values.reshape(
        math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:])
    )


def _spread(
    planes: Carrier, chains: _Chains, first: _Chains
) -> tuple[Carrier, ElementFlags] | None:
    """Sums over the second axis of (outer, n, inner), round after round, and the flags of each."""
    outer, _, inner = planes.shape
    flags, engine = np.zeros((outer, inner), np.uint8), first
    while planes.shape[1] > 1:
        length, whole = parts_of(planes.shape[1])
        end = whole * length
        sums = []
        for group in (planes[:, :end].reshape(outer, whole, length, inner), planes[:, None, end:]):
            if not group.shape[2]:
                continue
            result = engine(group)
            if result is None:
                return None
            sums.append(result[0])
            flags |= np.bitwise_or.reduce(result[1], axis=1)
        planes, engine = np.concatenate(sums, axis=1) if len(sums) > 1 else sums[0], chains
    return planes[:, 0], flags


def _chains(settings: Settings, parts: Carrier) -> tuple[Carrier, ElementFlags]:
    """Chains of any context's additions."""
    outer, whole, length, inner = parts.shape
    rows = parts.transpose(0, 1, 3, 2).reshape(outer * whole * inner, length)
    result, _, flags = Sums(settings, "sequential", rows, 1).run(FLAGS_EACH, divide=False)
    return result.reshape(outer, whole, inner), flags.reshape(outer, whole, inner)


def _chains_of_binary64(parts: Carrier) -> tuple[Carrier, ElementFlags]:
    sums = parts[:, :, 0].copy()
    with np.errstate(all="ignore"):
        for k in range(1, parts.shape[2]):
            sums += parts[:, :, k]
    return sums, np.zeros(sums.shape, np.uint8)


def _native_chains(parts: Carrier, *, squared: bool = False) -> tuple[Carrier, ElementFlags] | None:
    """Chains of the processor's additions of binary32, sixteen side by side."""
    outer, whole, length, inner = parts.shape
    if inner >= COLUMN_BLOCK:
        values = to_read(np.ascontiguousarray(parts))
        return _outer(values, (outer * whole, length, inner), (outer, whole, inner), squared)
    if outer == 1:  # parts take the place of what stands outside
        parts = parts.transpose(1, 0, 2, 3)
    sums = np.empty((len(parts), parts.shape[1], inner), np.float32)
    flags = np.empty(sums.shape, np.uint8)
    step = max(1, _BLOCK // max(parts[0].size, 1))
    for begin in range(0, len(parts), step):
        block = parts[begin : begin + step]
        columns = to_read(np.ascontiguousarray(block.transpose(2, 0, 1, 3)))
        shape = len(block), block.shape[1], inner
        result = _outer(columns, (1, length, math.prod(shape)), shape, squared)
        if result is None:
            return None
        sums[begin : begin + step], flags[begin : begin + step] = result
    shape = outer, whole, inner
    return sums.reshape(shape), flags.reshape(shape)


def _outer(
    values: Carrier, extents: tuple[int, int, int], shape: tuple[int, int, int], squared: bool
) -> tuple[Carrier, ElementFlags] | None:
    """Chains over the second of three extents of contiguous numbers."""
    outer, length, inner = extents
    width = max(inner, COLUMN_BLOCK)
    sums, flags = np.empty((outer, width), np.float32), np.empty((outer, width), np.uint8)
    if outer_sums(values.reshape(-1), (outer, length, width), inner, squared, sums, flags):
        return None
    if width > inner:
        sums, flags = sums[:, :inner], flags[:, :inner]
    return sums.reshape(shape), flags.reshape(shape)


_native_squares: _Chains = partial(_native_chains, squared=True)
