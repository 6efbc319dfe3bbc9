"""Models of Keras in several processes: the first process's values at the start, equal after that.

Variables are broadcast before a model's first launch of a training. What is trained, and slots, are
equal on all processes from then on: they are compared every `CHECK_EVERY` steps, at the end of
`fit`, and after the last launch of a program that calls no `fit`. Moving statistics are each
replica's own; the host has those of its first replica, so process 0 has what one process with all
replicas has.

Source    docs/semantics.md §9; `ipu.members.group` (what is compared, and when).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.frontends.tensorflow.engine.replica_set import ReplicaProcesses
from ipu.members.ending import before_end
from ipu.members.members import Meeting

__all__ = ["CHECK_EVERY", "check_end", "in_sync", "note_saved"]

#: Steps from one comparison of the variables to the next.
CHECK_EVERY = 100

#: Of a model: the step of its last comparison.
_CHECKED = "_fpsim_checked_at"

#: Models that were trained since their last comparison, in this order, by identity.
_trained_since: WeakKeyDictionary[ReplicaProcesses, dict[int, tuple[Any, Machine]]] = (
    WeakKeyDictionary()
)


def _processes(model: Any) -> ReplicaProcesses | None:
    """Those that train a model, where there are several."""
    together = model.distribute_strategy.replica_set
    return together if isinstance(together, ReplicaProcesses) and together.size > 1 else None


@contextmanager
def in_sync(model: Any, machine: Machine, *, trains: bool) -> Iterator[None]:
    """Around a launch: variables are equal on all processes before and, if it trains, after it.

    Raises    StoppedError, on every process, where they cannot be or are not.
    """
    processes = _processes(model)
    if processes is None or not trains:
        yield
        return
    if not hasattr(model, _CHECKED):
        _start(model, machine, processes)
    _await_end(model, machine, processes)
    yield
    if machine.step // CHECK_EVERY > getattr(model, _CHECKED) // CHECK_EVERY:
        _check(model, machine, processes)


def check_end(model: Any, machine: Machine) -> None:
    """Compare a model that has been trained.

    Raises    StoppedError, on every process, where the trained variables differ.
    """
    processes = _processes(model)
    if processes is not None and hasattr(model, _CHECKED):
        _check(model, machine, processes)


def note_saved(model: Any, machine: Machine) -> None:
    """The program has saved a model."""
    processes = _processes(model)
    if processes is not None:
        processes.members.saved = machine.step


def _await_end(model: Any, machine: Machine, processes: ReplicaProcesses) -> None:
    """Compare a model when the program ends, unless that is done before."""
    if processes not in _trained_since:
        _trained_since[processes] = {}
        before_end(processes.members.channel, lambda: _check_all(processes))
    _trained_since[processes][id(model)] = model, machine


def _check_all(processes: ReplicaProcesses) -> None:
    for model, machine in list(_trained_since[processes].values()):
        _check(model, machine, processes)


def _start(model: Any, machine: Machine, processes: ReplicaProcesses) -> None:
    """Give a model the first process's values; it must be the same model on all."""
    variables = _trained(model) + list(model.non_trainable_variables)
    lines = [f"replicas of a process: {machine.replicas}", *machine.lines]
    lines += [f"variable {v.name}: {v.dtype.name} {v.shape}" for v in variables]
    with processes.members.telling(lambda: machine.step):
        processes.members.agree(Meeting("the model's variables", machine.step), lines)
    for variable in variables:
        value = np.asarray(variable.numpy(), order="C")
        text = processes.members.root(value.tobytes(), variable.name)
        variable.assign(np.frombuffer(text, value.dtype).reshape(value.shape))
    object.__setattr__(model, _CHECKED, machine.step)


def _check(model: Any, machine: Machine, processes: ReplicaProcesses) -> None:
    total = hashlib.sha256()
    for variable in _trained(model):
        total.update(np.ascontiguousarray(variable.numpy()).tobytes())
    _trained_since.get(processes, {}).pop(id(model), None)
    with processes.members.telling(lambda: machine.step):
        processes.members.check("variables", total.hexdigest(), machine.step, "the model's digest")
    object.__setattr__(model, _CHECKED, machine.step)


def _trained(model: Any) -> list[Any]:
    """Trainable variables, and the optimiser's."""
    optimizer = model.optimizer.variables
    slots = optimizer() if callable(optimizer) else optimizer
    return [*model.trainable_variables, *slots]
