"""Steps of many variables as that of one vector, for rules that look at each element alone.

A rule of a dozen operations on arrays of some hundred numbers takes its time for the calls. The
bits are the same: each element is computed by the same operations in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from fpsim.array import Array
from ipu.learn.optim import Optimizer
from ipu.learn.optim.base import Observer, Pairs, Slots, Step, TableOptimizer
from ipu.machine.device import Device
from ipu.ops.updates import UPDATES

__all__ = ["StepOperands", "jointly", "steps_of"]

#: Elements of a vector, above which its numbers leave the cache between two operations.
_MOST = 1 << 16


class StepOperands(NamedTuple):
    """A variable before its step, its gradient and its slots, in one format."""

    w: Array
    g: Array
    slots: tuple[Array, ...]


def steps_of(
    rule: Optimizer, device: Device, rows: Sequence[StepOperands], rate: float
) -> list[Step]:
    """The steps of variables; of neighbours whose single numbers are the same in one call.

    Arrays of a narrower format than the rule's become arrays of that.
    """
    steps: list[Step] = []
    joint: list[StepOperands] = []
    most = _MOST if rows and _is_of_elements(rule, device, rows) else 0
    size = 0
    for row in rows:
        size += row.w.size
        if joint and (size > most or _singles(row) != _singles(joint[0])):
            steps += _joint_steps(rule, device, joint, rate)
            joint, size = [], row.w.size
        joint.append(row)
    return steps + (_joint_steps(rule, device, joint, rate) if joint else [])


def jointly(optimizer: Optimizer) -> Optimizer:
    """The optimiser, which lets all its variables take their steps as one vector.

    >>> from ipu.learn.optim import SGD
    >>> isinstance(jointly(SGD(0.1)), SGD)
    True
    """
    kind = type(optimizer)
    joint: type[Optimizer] = type(kind.__name__, (_Jointly, kind), {})
    numbers = {field.name: getattr(optimizer, field.name) for field in fields(optimizer)}  # type: ignore[arg-type]
    return joint(**numbers)


class _Jointly:
    """Mixed into an optimiser: its variables have one format and one device."""

    rule: Any

    def _applied(
        self, pairs: Pairs, slots: Slots, rate: float, observe: Observer | None
    ) -> dict[str, tuple[Array, ...]]:
        assert observe is None
        assert isinstance(self, Optimizer)
        if not pairs:
            return dict(slots)
        device, fmt = pairs[0][1].device, pairs[0][1].dtype
        rows = [
            StepOperands(variable.array, device.cast(gradient, fmt), slots.get(variable.name, ()))
            for gradient, variable in pairs
        ]
        after = dict(slots)
        steps = steps_of(self, device, rows, rate)
        for (_, variable), step in zip(pairs, steps, strict=True):
            after[variable.name] = step.slots
            variable.assign(step.values)
        return after


def _is_of_elements(rule: Optimizer, device: Device, rows: Sequence[StepOperands]) -> bool:
    """Whether a rule is a row of the table that looks at each element alone."""
    if not isinstance(rule, TableOptimizer) or type(rule).rule is not TableOptimizer.rule:
        return False
    row = _entered(rule, device, min(rows, key=lambda row: row.w.size))  # any tells the same
    return UPDATES[rule.asked(device, row.g, row.slots, rule.rate).row].by_element


def _entered(rule: Optimizer, device: Device, row: StepOperands) -> StepOperands:
    """A row in the rule's format."""
    return StepOperands(
        _joined(rule, device, [row.w]).reshape(row.w.shape),
        _joined(rule, device, [row.g]).reshape(row.g.shape),
        tuple(_joined(rule, device, [x]).reshape(x.shape) for x in row.slots))


def _singles(row: StepOperands) -> tuple[bytes | None, ...]:
    """The slots that are one number for a variable; None of those with one for each element."""
    shape = row.w.shape
    return tuple(
        None if x.shape == shape and shape else x.carrier.tobytes() for x in row.slots)


def _joint_steps(
    rule: Optimizer, device: Device, rows: Sequence[StepOperands], rate: float
) -> list[Step]:
    if len(rows) == 1:
        return [rule.rule(device, *_entered(rule, device, rows[0]), rate)]
    shapes = [row.w.shape for row in rows]
    joint = StepOperands(
        _joined(rule, device, [row.w for row in rows]),
        _joined(rule, device, [row.g for row in rows]),
        tuple(
            _joined(rule, device, [rows[0].slots[i]]).reshape(()) if single is not None
            else _joined(rule, device, [row.slots[i] for row in rows])
            for i, single in enumerate(_singles(rows[0]))
        ),
    )
    step = rule.rule(device, *joint, rate)
    columns = [_split(x, shapes) for x in (step.direction, step.change, step.values, *step.slots)]
    return [
        Step(direction, change, values, tuple(slots))
        for direction, change, values, *slots in zip(*columns, strict=True)
    ]


def _joined(rule: Optimizer, device: Device, arrays: Sequence[Array]) -> Array:
    """Arrays one behind the other, in the rule's format."""
    context = device.context(rule.format or arrays[0].format)
    flat = [x.carrier.reshape(-1) for x in arrays]
    return Array(np.concatenate(flat, dtype=context.format.carrier), context)


def _split(x: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """The parts of a vector, each in its shape, which share no element; a number for each."""
    if not x.shape:
        return [x] * len(shapes)
    parts: list[Array] = []
    start = 0
    for shape in shapes:
        end = start + math.prod(shape)
        parts.append(Array(x.carrier[start:end].reshape(shape), x.context))
        start = end
    return parts
