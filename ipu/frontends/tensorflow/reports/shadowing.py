"""Shadows of a program's values: every node runs once more in float64, by TensorFlow's own kernel.

A shadow belongs to the memory of a value, as births do; that of a variable outlives the launch, as
each launch reads the variable anew. What is drawn at random, read from a data set, or computed by
nodes that TensorFlow has no float64 kernel for begins anew from the machine's values; the last are
told.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.eager import context

from fpsim.array import Array
from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.frontends.tensorflow.engine.resources import Variable
from ipu.frontends.tensorflow.engine.values import FORMATS
from ipu.frontends.tensorflow.kernels.host import host_function, own_kernel
from ipu.frontends.tensorflow.kernels.table import KernelEntry, NodeSite, Run
from ipu.frontends.tensorflow.reports.layers import layer_of_variable
from ipu.run.account import split_name
from ipu.run.shadow import Shadow, motion

__all__ = ["GraphShadows"]

Numbers = NDArray[np.float64]
_WIDE = dict.fromkeys(FORMATS, tf.float64)
#: Functions of Python.
_FUNCTIONS = ("PyFunc", "EagerPyFunc")
#: Nodes that hand values on as they are.
_PASSING = ("ReadVariableOp", "Identity", "IdentityN", "NoOp")


class _Entry(NamedTuple):
    """A shadow, and the relative error of the operation that wrote the value."""

    shadow: Numbers
    error: float


class _VariableState(NamedTuple):
    """What a variable held after a write: the machine's numbers and the shadow."""

    machine: Numbers
    entry: _Entry


class GraphShadows:
    """The shadows of a run.

    account    is told of errors, choices and motions.
    """

    def __init__(self, account: Shadow, steps: int) -> None:
        self.account = account
        self._last = steps
        self._entries: dict[int, tuple[weakref.ref[Any], _Entry]] = {}
        self._held: dict[Hashable, _VariableState] = {}
        #: By key of a variable: before the first write, and the steps that wrote it.
        self._before: dict[Hashable, _VariableState] = {}
        self._steps: dict[Hashable, set[int]] = {}
        self._about: dict[Hashable, dict[str, Any]] = {}

    # Memory ---------------------------------------------------------------------------------

    def _find(self, array: Array) -> _Entry | None:
        row = self._entries.get(id(array.carrier))
        return row[1] if row is not None and row[0]() is array.carrier else None

    def _entry(self, array: Array) -> _Entry:
        """The shadow of an array; the machine's values where none is there."""
        return self._find(array) or _Entry(_wide(array), 0.0)

    def attach(self, array: Array, shadow: Any, error: float = 0.0) -> None:
        """An array has this shadow."""
        numbers = np.asarray(shadow, np.float64)
        self._entries[id(array.carrier)] = weakref.ref(array.carrier), _Entry(numbers, error)

    def _enter(self, variable: Variable) -> None:
        """A variable that was written in another launch has its shadow of then."""
        held, array = self._held.get(variable.key), variable.value
        if held is not None and isinstance(array, Array) and self._find(array) is None and (
            np.array_equal(held.machine, _wide(array), equal_nan=True)
        ):
            self.attach(array, *held.entry)

    # Nodes ----------------------------------------------------------------------------------

    def beside(self, site: NodeSite, entry: KernelEntry | None, run: Run) -> Run:
        """The kernel of a node, with its shadow computed beside it."""
        is_feed = site.node.type.startswith("IteratorGetNext") or site.node.marks.get("feed")
        if entry is None or entry.is_joint or entry.draws or is_feed:
            return run
        if not (site.node.has_floats or site.node.is_update):
            return run
        kernel, machine = _kernel_of(site), site.machine

        @cache
        def line() -> str:
            return site.line

        def shadowed_run(*values: Any) -> Any:
            if machine.step >= self._last:
                return run(*values)
            self.account.line = line
            variables = [x for x in values if isinstance(x, Variable)]
            for variable in variables:
                self._enter(variable)
            if site.node.type in _PASSING:
                return run(*values)
            if kernel is None:
                self.account.rejoined(_operation(site), "a function of the host")
                return run(*values)
            return self._run(site, kernel, run, values, variables)

        return shadowed_run

    def _run(
        self, site: NodeSite, kernel: Run, run: Run, values: Sequence[Any],
        variables: Sequence[Variable],
    ) -> Any:
        error = max((self._entry(x).error for x in _arrays(values)), default=0.0)
        try:
            local = _twin(kernel, values, _wide)
            shadow = _twin(kernel, values, lambda x: self._entry(x).shadow)
        except (tf.errors.OpError, TypeError, ValueError, NotImplementedError) as problem:
            self.account.rejoined(_operation(site), str(problem).partition("\n")[0][:80])
            return run(*values)
        before = [(v, _VariableState(_wide(v.value), self._entry(v.value))) for v in variables
                  if isinstance(v.value, Array)]
        result = run(*values)
        key = (*split_name(site.name), _operation(site))
        if site.node.is_update:
            for (variable, old), near, far in zip(
                before, _written(local, variables), _written(shadow, variables), strict=True
            ):
                self._wrote(site, key, variable, old, near, far)
        else:
            self._take(site, key, result, local.outputs, shadow.outputs, error)
        return result

    def _take(
        self, site: NodeSite, key: tuple[str, str, str], result: Any, local: Any, shadow: Any,
        error: float,
    ) -> None:
        rows = zip(*map(_several, (result, local, shadow)), strict=True)
        for x, near, far in rows:
            if isinstance(x, Array):
                if self._find(x) is None:
                    self.attach(x, far, self.account.compared(
                        key, _wide(x), np.asarray(near), np.asarray(far), error))
            elif isinstance(x, np.ndarray) and x.dtype.kind in "biu" and x.shape == np.shape(far):
                differing = int(np.count_nonzero(x != far))
                self.account.branched(key, site.machine.step, differing, x.size)

    def _wrote(
        self, site: NodeSite, key: tuple[str, str, str], variable: Variable, before: _VariableState,
        near: Any, far: Any,
    ) -> None:
        """A variable was written: its value has the shadow."""
        key_of, machine = variable.key, _wide(variable.value)
        near, far = (np.asarray(x, np.float64) for x in (near, far))
        error = self.account.compared(key, machine, near, far, before.entry.error)
        self.attach(variable.value, far, error)
        self._held[key_of] = _VariableState(machine, _Entry(far, error))
        self._before.setdefault(key_of, before)
        self._steps.setdefault(key_of, set()).add(site.machine.step)
        self._about[key_of] = {
            "line": site.line, "operation": _operation(site),
            "is_state": variable.watch is None and key[1] == "optimizer"
            and site.name.startswith("optimizer"),
            "name": layer_of_variable(variable.name) if variable.watch is not None else "",
        }

    def loss(self, machine: Machine, value: float, shadow: float) -> None:
        """A backward pass begins here."""
        if machine.step < self._last:
            self.account.loss(machine.step, value, shadow)

    def of(self, value: Any) -> Any:
        """The shadow of a value, or its numbers."""
        return self._entry(value).shadow if isinstance(value, Array) else np.asarray(value)

    def finish(self) -> None:
        """What moved is told."""
        for key, before in self._before.items():
            held, about = self._held[key], self._about[key]
            if len(self._steps[key]) < min(2, self.account.steps):
                continue
            how = motion((before.machine.ravel(), held.machine.ravel()),
                         (before.entry.shadow.ravel(), held.entry.shadow.ravel()))
            if how is not None:
                self.account.moved(
                    about.pop("name"), held.machine.shape, how, steps=len(self._steps[key]),
                    **about)
        self._before.clear()


# Kernels ------------------------------------------------------------------------------------------


class _Ran(NamedTuple):
    """Outputs of a kernel in float64, and its variables afterwards, by their number."""

    outputs: Any
    variables: dict[int, Any]


def _twin(kernel: Run, values: Sequence[Any], read: Callable[[Array], Numbers]) -> _Ran:
    """A node in float64, of what `read` gives of arrays; variables are others for the time."""
    with context.eager_mode():
        held = {
            i: tf.Variable(read(x.value) if isinstance(x.value, Array) else x.value)
            for i, x in enumerate(values) if isinstance(x, Variable)
        }
        operands = [
            held[i].handle if i in held else _operand(x, read)
            for i, x in enumerate(values)
        ]
        outputs = kernel(*operands)
        return _Ran(outputs, {i: v.numpy() for i, v in held.items()})


def _operand(x: Any, read: Callable[[Array], Numbers]) -> Any:
    """An operand in float64; what a composite saved on the machine is nothing to TensorFlow."""
    if isinstance(x, Array):
        return read(x)
    return x if isinstance(x, (np.ndarray, np.generic)) else np.float64(0)


def _kernel_of(site: NodeSite) -> Run | None:
    """TensorFlow's kernel of a node in float64, or a composite's rule.

    None of what the user or the front end computes on the host, which is called once.
    """
    if site.node.marks.get("rule"):
        return host_function(site)
    is_host = "kernel" in site.node.marks or site.node.type in _FUNCTIONS
    return None if is_host else own_kernel(site, kinds=_WIDE)


def _operation(site: NodeSite) -> str:
    """The name of a node's operation; of a composite its kernel's."""
    return str(site.node.marks.get("kernel", site.node.type))


def _written(ran: _Ran, variables: Sequence[Variable]) -> list[Any]:
    """The values of variables of floating-point numbers."""
    rows = zip(ran.variables.values(), variables, strict=True)
    return [value for value, variable in rows if isinstance(variable.value, Array)]


def _wide(x: Array) -> Numbers:
    return np.asarray(x.carrier, np.float64)


def _several(values: Any) -> Sequence[Any]:
    return values if isinstance(values, (tuple, list)) else (values,)


def _arrays(values: Sequence[Any]) -> Iterator[Array]:
    """The arrays among values, and those of variables."""
    for x in values:
        x = x.value if isinstance(x, Variable) else x
        if isinstance(x, Array):
            yield x
