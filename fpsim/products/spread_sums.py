"""Sums whose summands are spread over parts of at most 64, round after round.

The n summands of an output form P = ⌈n/64⌉ parts of ⌈n/P⌉ neighbours, the last one perhaps shorter.
Each part is added one after the other; the sums of the parts are the summands of the next round, by
the same rule, until one is left. So the order depends on n alone, and the error is at most
64 ⌈log₆₄ n⌉ u Σ|x|.

Source    docs/semantics.md §6 (sums of the device).
"""

from __future__ import annotations

import math

import numpy as np

from fpsim.kernels.by_operation.spread_sums import PART
from fpsim.kernels.by_operation.wide_chains import add_spread
from fpsim.kernels.elementwise.step import FLAGS_EACH
from fpsim.products.native_spread_sums import native_spread_sums
from fpsim.products.native_sums import is_native
from fpsim.products.rows import in_whole_steps
from fpsim.products.sums import AxisSum, RowSums
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags
from fpsim.state.publish import fold, publish
from fpsim.state.state import State

__all__ = ["PART", "native_spread_sum", "parts_of", "spread_sum", "sums_of_binary64"]


def parts_of(n: int) -> tuple[int, int]:
    """Summands of a part, and how many parts have so many; what is left is one part more.

    >>> parts_of(64), parts_of(100), parts_of(65), parts_of(130)
    ((64, 1), (50, 2), (33, 1), (44, 2))
    """
    length = -(-n // -(-n // PART))
    return length, n // length


def spread_sum(state: State, values: Carrier, axes: tuple[int, ...]) -> Carrier:
    """The sum over axes, published.

    Shapes    the axes vanish; over several, elements come in C order.
    Flags     those of all additions.
    """
    native = native_spread_sum(state, values, axes)
    if native is not None:
        return native
    chain = AxisSum(values, axes, "sequential", 1, divide=False)
    if math.prod(values.shape[a] for a in axes) <= PART:
        return chain.run(state, None)
    planes = in_whole_steps(_as_planes(values, axes))
    sums, flags = _spread(planes, state.settings)
    sums, flags = sums.reshape(chain.shape), flags.reshape(chain.shape)
    return publish(
        state, "sum", sums, fold(flags), flags if state.watched else None, chain.elements
    )


def native_spread_sum(
    state: State, values: Carrier, axes: tuple[int, ...], *, squared: bool = False
) -> Carrier | None:
    """The sum by the processor's own additions, published; None where it may differ.

    squared   the sum of squares, which must be numbers of binary32.
    """
    if not is_native(state.settings, "sequential"):
        return None
    native = native_spread_sums(values, axes, squared=squared)
    if native is None:
        return None
    sums, flags = native
    inexact = int(1 in flags.tobytes())
    if not state.watched:
        return publish(state, "sum", sums, inexact)
    chain = AxisSum(values, axes, "sequential", 1, divide=False)
    return publish(state, "sum", sums, inexact, flags, chain.elements)


def sums_of_binary64(values: Carrier, axes: tuple[int, ...]) -> Carrier:
    """Sums over axes by the processor's additions of binary64.

    >>> sums_of_binary64(np.ones((2, 100)), (1,)).tolist()
    [100.0, 100.0]
    """
    planes = np.ascontiguousarray(_as_planes(values, axes))
    sums: Carrier = np.zeros((planes.shape[0], planes.shape[2]))
    if planes.size:
        add_spread(planes, sums)
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


def _spread(planes: Carrier, settings: Settings) -> tuple[Carrier, ElementFlags]:
    """Sums over the second axis of (outer, n, inner), round after round, and the flags of each."""
    outer, _, inner = planes.shape
    flags = np.zeros((outer, inner), np.uint8)
    while planes.shape[1] > 1:
        length, whole = parts_of(planes.shape[1])
        end = whole * length
        sums = []
        for group in (planes[:, :end].reshape(outer, whole, length, inner), planes[:, None, end:]):
            if group.shape[2]:
                values, raised = _chains(settings, group)
                sums.append(values)
                flags |= np.bitwise_or.reduce(raised, axis=1)
        planes = np.concatenate(sums, axis=1) if len(sums) > 1 else sums[0]
    return planes[:, 0], flags


def _chains(settings: Settings, parts: Carrier) -> tuple[Carrier, ElementFlags]:
    """Chains of any context's additions."""
    outer, whole, length, inner = parts.shape
    rows = parts.transpose(0, 1, 3, 2).reshape(outer * whole * inner, length)
    result, _, flags = RowSums(settings, "sequential", rows, 1).run(FLAGS_EACH, divide=False)
    return result.reshape(outer, whole, inner), flags.reshape(outer, whole, inner)
