"""Shadows of a program's values: every node runs once more in float64 (`reports.twins`).

A shadow belongs to the memory of a value, as births do; that of a variable outlives the launch, as
each launch reads the variable anew. What is drawn at random, read from a data set, or computed by
nodes that TensorFlow has no float64 kernel for begins anew from the machine's values; the last are
told.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from fpsim.array import Array
from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.frontends.tensorflow.engine.node import Node
from ipu.frontends.tensorflow.engine.resources import Variable
from ipu.frontends.tensorflow.engine.writes import origin_of
from ipu.frontends.tensorflow.kernels.table import KernelEntry, NodeSite, Run, several
from ipu.frontends.tensorflow.reports.layers import layer_of_variable
from ipu.frontends.tensorflow.reports.twins import (
    ElementwiseTwin,
    NodeTwin,
    reads_carriers,
    twin_of,
    wide_copy,
)
from ipu.run.account import split_name
from ipu.run.shadow import Shadow, motion

__all__ = ["GraphShadows"]

Numbers = NDArray[np.float64]
#: Layer, direction and operation.
Key = tuple[str, str, str]
#: Nodes that hand values on as they are.
_PASSING = ("ReadVariableOp", "Identity", "IdentityN", "NoOp")
#: Nodes that stand for arguments of functions.
_ARGUMENTS = ("Placeholder", "_Arg")


class _Entry:
    """What is beside a value of the machine.

    carrier   the machine's numbers.
    shadow    numbers of float64; None: they are the machine's.
    error     relative, of the operation that wrote the value.
    forget    called when nobody holds the carrier any more.
    """

    __slots__ = ("_carrier", "_machine", "_shadow", "error")

    def __init__(
        self, carrier: Any, shadow: Any = None, error: float = 0.0,
        forget: Callable[[Any], object] | None = None,
    ) -> None:
        self._carrier = weakref.ref(carrier, forget)
        self._shadow, self.error = shadow, error
        self._machine: Any = None

    @property
    def carrier(self) -> Any:
        return self._carrier()

    @property
    def machine(self) -> Any:
        """The machine's numbers in float64, which several nodes may take."""
        if self._machine is None:
            self._machine = wide_copy(self.carrier)
        return self._machine

    @property
    def shadow(self) -> Any:
        return self.machine if self._shadow is None else self._shadow

    @property
    def is_apart(self) -> bool:
        """Whether the shadow has numbers of its own."""
        return self._shadow is not None


class _VariableState(NamedTuple):
    """What a variable held after a write: the machine's numbers, the shadow and its error."""

    machine: NDArray[np.floating]
    shadow: Any
    error: float


class GraphShadows:
    """The shadows of a run.

    account    is told of errors, choices and motions.
    """

    def __init__(self, account: Shadow, steps: int) -> None:
        self.account = account
        self._last = steps
        self._entries: dict[int, _Entry] = {}
        self._held: dict[Hashable, _VariableState] = {}
        #: By key of a variable: before the first write, and the steps that wrote it.
        self._before: dict[Hashable, _VariableState] = {}
        self._steps: dict[Hashable, set[int]] = {}
        #: The site that wrote it last, and what is told of that.
        self._about: dict[Hashable, tuple[NodeSite, dict[str, Any]]] = {}

    # Memory ---------------------------------------------------------------------------------

    def _find(self, array: Array) -> _Entry | None:
        entry = self._entries.get(id(array.carrier))
        return entry if entry is not None and entry.carrier is array.carrier else None

    def _entry(self, array: Array) -> _Entry:
        """The shadow of an array; the machine's values where none is there."""
        return self._find(array) or _Entry(array.carrier)

    def attach(self, array: Array, shadow: Any, error: float = 0.0) -> None:
        """An array has this shadow."""
        shadow = np.asarray(shadow, np.float64)
        entries, key = self._entries, id(array.carrier)
        entries[key] = _Entry(array.carrier, shadow, error, lambda _: entries.pop(key, None))

    def _enter(self, variable: Variable) -> None:
        """A variable that was written in another launch has its shadow of then."""
        held, array = self._held.get(variable.key), variable.value
        if held is not None and isinstance(array, Array) and self._find(array) is None and (
            np.array_equal(held.machine, array.carrier)
            or np.array_equal(held.machine, array.carrier, equal_nan=True)
        ):
            self.attach(array, held.shadow, held.error)

    # Nodes ----------------------------------------------------------------------------------

    def beside(self, site: NodeSite, entry: KernelEntry | None, run: Run) -> Run:
        """The kernel of a node, with its shadow computed beside it."""
        is_feed = site.node.type.startswith("IteratorGetNext") or site.node.marks.get("feed")
        if entry is None or entry.is_joint or entry.draws or is_feed:
            return run
        if not (site.node.has_floats or site.node.is_update):
            return run
        twin, machine = twin_of(site), site.machine
        kind = site.node.type
        fused = ElementwiseTwin(kind) if kind in ElementwiseTwin.OPERATIONS else None
        is_move = entry.rounding.startswith("none") and not site.node.is_update
        key = (*split_name(site.name), _operation(site))

        @cache
        def line() -> str:
            return site.line

        def shadowed_run(*values: Any) -> Any:
            if machine.step >= self._last:
                return run(*values)
            self.account.line = line
            for x in values:
                if isinstance(x, Variable):
                    self._enter(x)
            if site.node.type in _PASSING:
                return run(*values)
            if twin is None:
                self.account.rejoined(_operation(site), "a function of the host")
                return run(*values)
            return self._compute(site, key, fused, twin, run, values, is_move=is_move)

        return shadowed_run

    def _compute(
        self, site: NodeSite, key: Key, fused: ElementwiseTwin | None, twin: NodeTwin, run: Run,
        values: Sequence[Any], *, is_move: bool,
    ) -> Any:
        """The node runs, and its shadow: in one pass where it is of arrays alone, and finite."""
        if fused is not None and site.node.is_update:
            return self._update_fused(site, key, fused, twin, run, values)
        if fused is None or not all(isinstance(x, Array) for x in values):
            return self._run(site, key, twin, run, values, is_move=is_move)
        result = run(*values)
        if not self._take_fused(key, fused, values, result):
            self._run(site, key, twin, lambda *_: result, values, is_move=is_move)
        return result

    def _take_fused(
        self, key: Key, fused: ElementwiseTwin, values: Sequence[Array], result: Any
    ) -> bool:
        """Whether the result of arrays has its shadow now, computed in one pass."""
        if not isinstance(result, Array) or self._find(result) is not None:
            return False
        entries = [self._entry(value) for value in values]
        row = _in_one_pass(fused, entries, result)
        if row is not None:
            shadow, squares = row
            error = self.account.added(
                key, squares, result.size, max([entry.error for entry in entries]))
            self.attach(result, shadow, error)
        return row is not None

    def _update_fused(
        self, site: NodeSite, key: Key, fused: ElementwiseTwin, twin: NodeTwin, run: Run,
        values: Sequence[Any],
    ) -> Any:
        """A variable takes a step whose shadow is computed in one pass, where that is finite."""
        variable, old = values[0], values[0].value
        operands = [x.value if isinstance(x, Variable) else x for x in values]
        if not all(isinstance(x, Array) for x in operands):
            return self._run(site, key, twin, run, values, is_move=False)
        entries = [self._entry(x) for x in operands]
        result = run(*values)
        row = _in_one_pass(fused, entries, variable.value)
        if row is not None:
            error = self.account.added(
                key, row[1], variable.value.size, entries[0].error)
            self._write(site, key, variable, old, entries[0], row[0], error)
        else:
            near, far = (
                twin(x, [0])[1][0]
                for x in ([e.machine for e in entries], [e.shadow for e in entries]))
            self._wrote(site, key, variable, old, entries[0], near, far)
        return result

    def _run(
        self, site: NodeSite, key: Key, twin: NodeTwin, run: Run, values: Sequence[Any], *,
        is_move: bool,
    ) -> Any:
        arrays = dict(_arrays(values))
        entries = {i: self._entry(x) for i, x in arrays.items()}
        variables = [i for i, x in enumerate(values) if isinstance(x, Variable)]
        operands = [x.value if isinstance(x, Variable) else x for x in values]
        is_apart = any(entry.is_apart for entry in entries.values())
        near = None
        try:
            far = twin(_with(operands, {i: e.shadow for i, e in entries.items()}), variables)
            if not is_apart:
                near = far
            elif not is_move:
                machines = {
                    i: e.carrier if reads_carriers(site) else e.machine
                    for i, e in entries.items()}
                near = twin(_with(operands, machines), variables)
        except (tf.errors.OpError, TypeError, ValueError, NotImplementedError) as problem:
            self.account.rejoined(_operation(site), str(problem).partition("\n")[0][:80])
            return run(*values)
        result = run(*values)
        if site.node.is_update:
            assert near is not None
            for i, local, shadow in zip(variables, near[1], far[1], strict=True):
                if i in arrays:
                    self._wrote(site, key, values[i], arrays[i], entries[i], local, shadow)
        else:
            error = max((entry.error for entry in entries.values()), default=0.0)
            self._take(site, key, result, None if near is None else near[0], far[0], error)
        return result

    def _take(
        self, site: NodeSite, key: Key, result: Any, local: Any, shadow: Any,
        error: float,
    ) -> None:
        """Results have their shadows; without `local` nothing was rounded."""
        results = several(result)
        for x, near, far in zip(results, local or [None] * len(results), shadow, strict=True):
            if isinstance(x, Array):
                if self._find(x) is None:
                    machine = x.carrier if near is None else near
                    self.attach(x, far, self.account.compared(
                        key, x.carrier, machine, far, error))
            elif isinstance(x, np.ndarray) and x.dtype.kind in "biu" and x.shape == np.shape(far):
                differing = int(np.count_nonzero(x != np.asarray(far)))
                self.account.branched(key, site.machine.step, differing, x.size)

    def _wrote(
        self, site: NodeSite, key: Key, variable: Variable, old: Array,
        entry: _Entry, near: Any, far: Any,
    ) -> None:
        """A variable was written: `near` is of the machine's operands, `far` of their shadows."""
        error = self.account.compared(
            key, variable.value.carrier, near, far, entry.error)
        self._write(site, key, variable, old, entry, far, error)

    def _write(
        self, site: NodeSite, key: Key, variable: Variable, old: Array,
        entry: _Entry, far: Any, error: float,
    ) -> None:
        key_of, machine = variable.key, variable.value.carrier
        self.attach(variable.value, far, error)
        self._held[key_of] = _VariableState(machine, far, error)
        self._before.setdefault(key_of, _VariableState(old.carrier, entry.shadow, entry.error))
        self._steps.setdefault(key_of, set()).add(site.machine.step)
        writer, about = self._about.get(key_of, (None, {}))
        if writer is not site:
            about = _about(site, key, variable)
        self._about[key_of] = site, about

    def loss(self, machine: Machine, value: float, shadow: float) -> None:
        """A backward pass begins here."""
        if machine.step < self._last:
            self.account.loss(machine.step, value, shadow)

    def of(self, value: Any) -> Any:
        """The shadow of a value, or its numbers."""
        is_array = isinstance(value, Array)
        return self._entry(value).shadow if is_array else np.asarray(value)

    def finish(self) -> None:
        """What moved is told."""
        for key, before in self._before.items():
            held, about = self._held[key], dict(self._about[key][1])
            if len(self._steps[key]) < min(2, self.account.steps):
                continue
            machine = [np.asarray(x.machine, np.float64).ravel() for x in (before, held)]
            shadow = [x.shadow.ravel() for x in (before, held)]
            how = motion(
                (machine[0], machine[1]), (shadow[0], shadow[1]), len(self._steps[key]))
            if how is not None:
                self.account.moved(
                    about.pop("name"), held.machine.shape, how, steps=len(self._steps[key]),
                    **about)
        self._before.clear()


def _in_one_pass(
    fused: ElementwiseTwin, entries: Sequence[_Entry], result: Array
) -> tuple[Any, list[float]] | None:
    """The shadow of a result, and the sums of squares; None where a sum is not finite."""
    x, y = entries[0], entries[-1]
    machine, far = x.carrier, x.shadow
    if len(entries) == 2:
        return fused.beside(
            machine, y.carrier, far, y.shadow, result.carrier)
    return fused.beside(
        machine, fused.partner(machine), far, fused.partner(far), result.carrier)


def _about(
    site: NodeSite, key: Key, variable: Variable
) -> dict[str, Any]:
    """What is told of the motion of a variable that a node writes.

    name    of a parameter that of its layer; "" of a state of an optimiser, and of a variable that
            the program gave none.
    """
    is_parameter, layer = variable.watch is not None, layer_of_variable(variable.name)
    is_unnamed = variable.name.partition("_")[0] == "Variable"
    is_state = not is_parameter and key[1] == "optimizer" and (
        site.name.startswith("optimizer") and _has_gradient(site.node.op))
    return {
        "line": site.line, "operation": _operation(site), "is_state": is_state,
        "name": layer if is_parameter else "" if is_state or is_unnamed else variable.name,
        "layer": "" if is_state else layer, "is_parameter": is_parameter,
        "is_sum": _is_of_itself(site.node.op),
    }


def _has_gradient(update: tf.Operation) -> bool:
    """Whether what a variable is updated with comes from a gradient, and not through variables.

    Slots of optimisers take gradients, averages of weights do not. Arguments of a function may be
    gradients.
    """
    waiting, reached = [update], {update.name}
    while waiting:
        for tensor in waiting.pop().inputs:
            op = tensor.op
            if tensor.dtype == tf.resource or op.name in reached:
                continue
            if op.type in _ARGUMENTS or Node(op).is_gradient:
                return True
            reached.add(op.name)
            waiting.append(op)
    return False


def _is_of_itself(update: tf.Operation) -> bool:
    """Whether what a variable becomes depends on what it was; a rate by the step does not.

    Arguments of a function may.
    """
    if update.type != "AssignVariableOp":
        return True
    variable = origin_of(update.inputs[0])
    waiting, reached = [update.inputs[1].op], {update.name}
    while waiting:
        op = waiting.pop()
        if op.type in _ARGUMENTS or (
                op.type == "ReadVariableOp" and origin_of(op.inputs[0]) == variable):
            return True
        reached.add(op.name)
        waiting += [
            x.op for x in op.inputs if x.dtype != tf.resource and x.op.name not in reached]
    return False


# Values -------------------------------------------------------------------------------------------


def _with(values: Sequence[Any], numbers: Mapping[int, Any]) -> list[Any]:
    """Values with numbers in the places of arrays."""
    return [numbers.get(i, x) for i, x in enumerate(values)]


def _operation(site: NodeSite) -> str:
    """The name of a node's operation; of a composite its kernel's."""
    return str(site.node.marks.get("kernel", site.node.type))


def _arrays(values: Sequence[Any]) -> Iterator[tuple[int, Array]]:
    """The arrays among values, and those of variables, with their places."""
    for i, x in enumerate(values):
        x = x.value if isinstance(x, Variable) else x
        if isinstance(x, Array):
            yield i, x
