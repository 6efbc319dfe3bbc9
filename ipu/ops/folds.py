"""Results so far along an axis, and rows into which many are folded: in index order.

Both are one operation of the device after the other. Where the processor rounds as the device does
they run in one loop: values, flags, counters and cycles are the same. Where operations may trap,
each runs alone, so that the one that traps is told.

Source    docs/semantics.md §6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.folding import ProcessorFold, processor_fold
from fpsim.records.types import Carrier
from ipu.machine.device import Device

__all__ = ["folded", "folded_by", "running"]

Rows = NDArray[np.integer[Any]]
Verb = Callable[[Array, Array], Array]

#: What an empty sum and an empty product are.
_STARTS = {"add": 0.0, "multiply": 1.0}


def _processors(device: Device, verb: str, x: Array) -> ProcessorFold | None:
    """The verb by the processor; None where each operation has to run alone."""
    context = x.context
    if context is not device.context(x.format) or context.core.armed or device.recording:
        return None
    return processor_fold(verb, context.core.settings)


def _publish(
    device: Device, verb: str, x: Array, flags: int, sizes: NDArray[np.int64],
    operands: tuple[Carrier, Carrier] | None,
) -> None:
    """Flags, counters and cycles of operations of these sizes on so many elements in all."""
    core = x.context.core
    if device.notes is not None:
        device.notes.refuse()
    assert core.loops is not None
    cycles, elements = core.loops[verb]
    before = device.vector_cycles
    if operands is not None:  # the same operations beside each other, to count them
        getattr(device, verb)(*(x.like(operand) for operand in operands))
    if flags:
        core.raise_flags(flags)
    device.vector_cycles = before + cycles * int((-(-sizes // elements)).sum())


def running(
    device: Device, verb: str, x: Array, axis: int, *, exclusive: bool = False,
    reverse: bool = False,
) -> Array:
    """x₀, x₀ ∘ x₁, … along an axis, ∘ being "add" or "multiply"; see `ipu.ops.cumulative_sum`."""
    axis = range(x.ndim)[axis]
    start, fold = _STARTS[verb], _processors(device, verb, x)
    if fold is None or x.size == 0:
        return _running_alone(getattr(device, verb), x, axis, start, exclusive, reverse)
    values, flags = fold.running(
        x.carrier, axis, start=start, exclusive=exclusive, reverse=reverse
    )
    n = x.shape[axis]
    steps = max(0, n - exclusive - 1)
    operands = None
    if x.context.core.counts is not None and steps:
        results, terms = (np.moveaxis(a, axis, 0) for a in (values, x.carrier))
        if reverse:
            results, terms = results[::-1], terms[::-1]
        operands = results[exclusive : exclusive + steps], terms[1 : 1 + steps]
    _publish(device, verb, x, flags, np.full(steps, x.size // n), operands)
    return x.like(values)


def _running_alone(
    operation: Verb, x: Array, axis: int, start: float, exclusive: bool, reverse: bool
) -> Array:
    rows = np.moveaxis(x.carrier, axis, 0)
    rows = np.ascontiguousarray(rows[::-1] if reverse else rows)
    results = np.full(rows.shape, start, rows.dtype)
    total = x
    for i, row in enumerate(rows[:-1] if exclusive else rows):
        total = operation(total, x.like(row)) if i else x.like(row)
        results[i + exclusive] = total.carrier
    turned = np.moveaxis(results[::-1] if reverse else results, 0, axis)
    return x.like(np.ascontiguousarray(turned))


def folded(device: Device, verb: str, base: Array, rows: Rows, values: Array) -> Array:
    """base with each of the values added to its row, or multiplied, in order of the values.

    Shapes    base (rows, …), values (indices, …).
    """
    fold = _processors(device, verb, base)
    if fold is None:
        return folded_by(getattr(device, verb), base, rows, values)
    total = base.like(np.array(base.carrier, order="C"))
    shape = (len(rows), *base.shape[1:])
    terms = np.broadcast_to(values.carrier, shape)
    counts = base.context.core.counts is not None
    before, flags = fold.fold(total.carrier, rows, terms, tells=counts)
    operands = (before.reshape(shape), terms) if counts and len(rows) else None
    _publish(device, verb, base, flags, _sizes_of_turns(rows) * math.prod(shape[1:]), operands)
    return total


def folded_by(verb: Verb, base: Array, rows: Rows, values: Array) -> Array:
    """The same by any operation of two operands."""
    total = base.like(base.carrier.copy())
    for positions in _turns(rows):
        at = rows[positions]
        result = verb(total.like(total.carrier[at]), values.like(values.carrier[positions]))
        total.carrier[at] = result.carrier
    return total


def _turns(rows: Rows) -> Iterator[Any]:
    """Positions of the values, so that a row comes at most once in a turn, in their order."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = np.flatnonzero(np.r_[len(rows) > 0, ordered[1:] != ordered[:-1]])
    sizes = np.diff(np.r_[starts, len(rows)]).astype(np.intp)
    rank = np.arange(len(rows)) - np.repeat(starts, sizes)
    for turn in range(int(sizes.max(initial=0))):
        yield order[rank == turn]


def _sizes_of_turns(rows: Rows) -> NDArray[np.int64]:
    """How many rows each of those turns has.

    >>> _sizes_of_turns(np.array([4, 1, 4, 4])).tolist()
    [2, 1, 1]
    """
    by_size = np.bincount(np.bincount(rows))
    at_least = by_size[::-1].cumsum()[::-1]
    return at_least[1:].astype(np.int64)
