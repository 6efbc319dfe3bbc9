"""What replicas keep to themselves from launch to launch: moving statistics, metrics.

A variable of the host is that of replica 0. Where another replica's value differs at the end of a
launch it stays on the machine, and is used again as long as the host's value has not changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fpsim.array import Array
from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.frontends.tensorflow.engine.replica_set import ALONE, ReplicaSet
from ipu.frontends.tensorflow.engine.resources import Variable
from ipu.frontends.tensorflow.engine.values import numbers

__all__ = ["forget_private", "in_replicas", "private_values"]


@contextmanager
def in_replicas(machine: Machine, count: int, replica_set: ReplicaSet = ALONE) -> Iterator[None]:
    """Programs inside run in so many replicas here, and in as many on each other process."""
    replica_set.check(count)
    before = machine.replicas, machine.replica_set
    machine.replicas, machine.replica_set = count, replica_set
    try:
        yield
    finally:
        machine.replicas, machine.replica_set = before


@contextmanager
def private_values(
    machine: Machine, handles: Sequence[Any], replicas: Sequence[Sequence[Any]]
) -> Iterator[None]:
    """The launch inside starts with each replica's own values, and leaves them.

    handles    of the host, in the order of each replica's values.
    """
    if len(replicas) > 1:
        _recall(machine, handles, replicas)
    yield
    if len(replicas) > 1:
        _keep(machine, handles, replicas)


def forget_private(machine: Machine, handle: Any) -> None:
    """Every replica has the host's value again."""
    machine.private.pop(id(handle), None)


def _recall(machine: Machine, handles: Sequence[Any], replicas: Sequence[Sequence[Any]]) -> None:
    for handle, (first, *others) in zip(handles, zip(*replicas, strict=True), strict=True):
        entry = machine.private.get(id(handle))
        if entry is None:
            continue
        _, value, values = entry
        if len(values) == len(others) and _same(first.value, value):
            for variable, value_of_replica in zip(others, values, strict=True):
                variable.value = value_of_replica
        else:
            forget_private(machine, handle)


def _keep(machine: Machine, handles: Sequence[Any], replicas: Sequence[Sequence[Any]]) -> None:
    for handle, (first, *others) in zip(handles, zip(*replicas, strict=True), strict=True):
        if not isinstance(first, Variable) or not first.is_written:
            continue
        if all(_same(first.value, other.value) for other in others):
            forget_private(machine, handle)
        else:  # the handle is kept so that its identity stays its own
            values = [other.value for other in others]
            machine.private[id(handle)] = handle, first.value, values


def _same(x: Any, y: Any) -> bool:
    """Whether two values have the same bits."""
    if isinstance(x, Array) and isinstance(y, Array) and x.format != y.format:
        return False
    a, b = np.ascontiguousarray(numbers(x)), np.ascontiguousarray(numbers(y))
    return a.shape == b.shape and a.tobytes() == b.tobytes()
