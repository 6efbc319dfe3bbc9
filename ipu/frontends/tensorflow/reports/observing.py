"""What a machine that counts is told by nodes: kinds, exponents, losses, updates, constants.

Nothing here changes a value or draws a number, so a run that is observed has the same bits.

What a loss and its scale are, `engine.losses` says. A loss that nothing reads is not computed: it
is told where `engine.unread` finds it, else its name is.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from ipu.frontends.tensorflow.engine.losses import Loss, find_losses
from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.frontends.tensorflow.engine.node import Node
from ipu.frontends.tensorflow.engine.program import GraphProgram, program_of
from ipu.frontends.tensorflow.engine.resources import Variable
from ipu.frontends.tensorflow.engine.unread import Formula, formula_of
from ipu.frontends.tensorflow.engine.values import FORMATS, numbers
from ipu.frontends.tensorflow.kernels.table import KernelEntry, NodeSite, Run
from ipu.frontends.tensorflow.reports.layers import OPTIMIZER, layer_of_variable
from ipu.run.account import counted_name, fit
from ipu.run.recorder import Recorder

__all__ = ["note_weights", "observed", "watch"]


def observed(site: NodeSite, entry: KernelEntry | None, run: Run) -> Run:
    """The kernel of a node, telling what its results are; as it is where nobody asks for them."""
    machine = site.machine
    if not site.run.is_watched or (entry is not None and entry.is_joint):
        return run
    node, graph, recorder = site.node, site.node.op.graph, site.run.recorder
    followers, telling = _observed_in(machine, recorder, graph)
    if node.name in followers:
        run = _noting_losses(followers[node.name], node.name, run)
    forward = node.forward
    if forward is not None and forward.name in telling and node.type == "Mul":
        run = _noting_scale(telling[forward.name], run)
    elif node.name in telling and node.type != "Mul":
        run = _noting_scale(telling[node.name], run)
    if entry is not None and node.type == "Cast" and (
        site.direction == "optimizer" or tf.get_static_value(node.inputs[0]) is not None
    ):
        run = _noting_constant(site, run)
    return _noting_results(site, _kind(site.node, entry), run)


def _kind(node: Node, entry: KernelEntry | None) -> str:
    """Of an operation, as `ipu.run.account` has them."""
    if entry is None or not (node.has_floats or node.is_update):
        return "integer"
    if entry.on_host and not (entry.name == "PyFunc" and not node.inputs):
        return "host"
    is_move = entry.rounding.startswith(("none", "to nearest on the host", "on the host"))
    return "exact" if is_move else "machine"


def _noting_results(site: NodeSite, kind: str, run: Run) -> Run:
    account, operation, name, told = site.run.account, site.node.type, site.name, site.run.result
    is_told = kind != "exact"

    @cache
    def line() -> str:
        return site.line

    births, recorder, phase = site.run.recorder.births, site.run.recorder, _phase(site)

    def wrote(values: tuple[Any, ...]) -> None:
        """A variable that no step of an optimiser writes, as a counter, has a new value."""
        variable = values[0]
        if variable.watch is None and not name.startswith(OPTIMIZER):
            where = variable.name, "other", site.machine.step
            operands = [x for x in values[1:] if isinstance(x, Array)]
            recorder.wrote(where, operation, variable.value, operands)

    def noted_run(*values: Any) -> Any:
        before = account.noted
        births.line, births.phase = line, phase
        result = run(*values)
        if isinstance(result, Array):  # of most nodes, each of which comes here
            if account.noted == before:
                account.add(kind, operation, result.size)
            if is_told:
                told(name, operation, result, [x for x in values if isinstance(x, Array)])
            return result
        several = result if isinstance(result, tuple) else ()
        arrays = [x for x in several if isinstance(x, Array)]
        if account.noted == before:  # a kernel that leaves the machine notes that itself
            written = values[0].value if not arrays and _is_array(values) else None
            size = sum([x.size for x in arrays]) if written is None else written.size
            account.add(kind, operation, size)
        if _is_array(values) and not arrays:
            wrote(values)
        if is_told:
            operands = [x for x in values if isinstance(x, Array)]
            for x in arrays:
                told(name, operation, x, operands)
        return result

    return noted_run


def _phase(site: NodeSite) -> str:
    """What is told in place of "optimizer" of an update that no gradient reaches; "" of others.

    One with a scope is a layer's, which takes its statistics in the pass forward.
    """
    if site.direction != OPTIMIZER or site.layer == OPTIMIZER:
        return ""
    node = site.node
    return "update" if node.layer == node.name.rpartition("/")[2] else "forward"


def _is_array(values: tuple[Any, ...]) -> bool:
    """Whether the first value is a variable of floating-point numbers."""
    return bool(values) and isinstance(values[0], Variable) and values[0].fmt is not None


# Losses -----------------------------------------------------------------------------------------


class _Followed:
    """A loss whose value follows from tensors that the machine computes."""

    def __init__(self, machine: Machine, recorder: Recorder, loss: Loss, formula: Formula) -> None:
        self._machine, self._recorder, self._loss = machine, recorder, loss
        self._formula = formula
        self._waiting: dict[tuple[str, int], deque[Any]] = {k: deque() for k in formula.leaves}

    def take(self, leaf: tuple[str, int], value: Any) -> None:
        """A tensor was computed; of several replicas one after the other."""
        shadows = self._machine.shadows
        shadow = None if shadows is None else shadows.of(value)
        self._waiting[leaf].append((np.float64(numbers(value)), shadow))
        if not all(self._waiting.values()):
            return
        rows = {k: waiting.popleft() for k, waiting in self._waiting.items()}
        number = self._number({k: row[0] for k, row in rows.items()})
        self._recorder.loss(self._machine.step, number)
        if shadows is not None:
            shadows.loss(
                self._machine, number, self._number({k: row[1] for k, row in rows.items()}))
        fmt = FORMATS.get(self._loss.tensor.dtype)
        if fmt is not None and fmt.bits < BINARY32.bits:
            self._note_root(fmt, number)

    def _number(self, values: dict[tuple[str, int], Any]) -> float:
        with np.errstate(all="ignore"):
            return float(np.reshape(self._formula.value(values), ()))

    def _note_root(self, fmt: Format, number: float) -> None:
        """A loss in a narrow format: loss times scale and the root are numbers of it."""
        self._recorder.bound(_ROOT, fmt, number)
        self._recorder.bound(_ROOT, fmt, 1.0)
        if self._loss.product is None:
            first = np.full(1, self._machine.loss_scale, np.float32)
            self._recorder.results.add(counted_name(_ROOT, "backward"), fmt, first)


#: The layer of a loss in a narrow format.
_ROOT = "loss"


class _Observed(NamedTuple):
    """What nodes of a graph tell, by their names.

    losses    output, and who takes it.
    scales    what to do with a number.
    """

    losses: dict[str, list[tuple[int, _Followed]]]
    scales: dict[str, Callable[[Any], None]]


def _observed_in(machine: Machine, recorder: Recorder, graph: Any) -> _Observed:
    """What a graph tells on a machine; found once."""
    program = program_of(graph)
    by_machine: WeakKeyDictionary[Machine, _Observed] = program.__dict__.setdefault(
        "observed", WeakKeyDictionary()
    )
    if machine not in by_machine:
        followers = _followers(machine, recorder, program)
        scales = _scales(graph, recorder, machine.loss_scale)
        by_machine[machine] = _Observed(followers, scales)
    return by_machine[machine]


def _followers(
    machine: Machine, recorder: Recorder, program: GraphProgram
) -> dict[str, list[tuple[int, _Followed]]]:
    nodes = {node.name for node in program.nodes}
    followers: dict[str, list[tuple[int, _Followed]]] = {}
    for loss in find_losses(program.graph):
        formula = formula_of(loss.tensor, nodes)
        if formula is None or not formula.leaves:
            recorder.unread.add(loss.tensor.op.name)
            continue
        follow = _Followed(machine, recorder, loss, formula)
        for name, index in formula.leaves:
            followers.setdefault(name, []).append((index, follow))
    return followers


def _noting_losses(followers: list[Any], name: str, run: Run) -> Run:
    def noted_run(*values: Any) -> Any:
        result = run(*values)
        for index, follow in followers:
            value = result[index] if isinstance(result, tuple) else result
            follow.take((name, index), value)
        return result

    return noted_run


def _scales(
    graph: Any, recorder: Recorder, outside: float
) -> dict[str, Callable[[Any], None]]:
    """What tells of a loss scale, by the node after which it does.

    outside    the scale that the program is given beside its own.
    """
    tell = partial(_set_scale, recorder, outside)
    telling: dict[str, Callable[[Any], None]] = {}
    for loss in find_losses(graph):
        if loss.product is None:
            continue
        if not math.isnan(loss.factor):
            telling[loss.product] = partial(tell, loss.factor, 1.0)
        elif loss.source.op.type == "Placeholder":
            telling[loss.product] = partial(tell, math.nan, outside)
        else:
            telling[loss.source.op.name] = partial(tell, math.nan, 1.0)
    return telling


def _single(value: Any) -> float:
    values = numbers(value)
    return float(values.reshape(())) if values.size == 1 else 1.0


def _set_scale(
    recorder: Recorder, outside: float, constant: float, held: float, told: Any
) -> None:
    """The present scale: a number of the program, and the one from outside.

    constant    the program's; NaN for what a node tells.
    held        factor of what the node tells.
    """
    scale = _single(told) / held if math.isnan(constant) else constant
    recorder.scale = outside * (scale if 1 < scale < math.inf else 1.0)


def _noting_scale(tell: Any, run: Run) -> Run:
    """The number is told by its variable, or is the gradient of the product that scales."""

    def noted_run(*values: Any) -> Any:
        result = run(*values)
        if isinstance(result, Array) and result.size == 1:
            tell(result)
        return result

    return noted_run


# Constants ----------------------------------------------------------------------------------------


def _noting_constant(site: NodeSite, run: Run) -> Run:
    """Numbers of an optimiser that are cast into the format of a variable."""

    def noted_run(x: Any) -> Any:
        result = run(x)
        if isinstance(x, Array) and isinstance(result, Array) and not x.ndim:
            value = float(x.carrier)
            change = fit(value, float(result.carrier), result.format)
            if change:
                site.note_constant(result.format, value, change)
        return result

    return noted_run


# Variables ----------------------------------------------------------------------------------------


def watch(machine: Machine, variable: Variable) -> None:
    """Tell of the updates of a variable that is trained."""
    if machine.run.is_counting:
        layer = layer_of_variable(variable.name)
        variable.watch = partial(_note_update, machine.run.recorder, layer, variable.name)


def _note_update(
    recorder: Recorder, layer: str, name: str, before: Array, term: Array, after: Array
) -> None:
    if isinstance(before, Array) and isinstance(term, Array):
        recorder.update(
            layer, name, after.format, before.carrier, term.carrier, after.carrier, name)


def note_weights(machine: Machine, variable: Variable) -> None:
    """Tell of the values of a variable that is trained, after a launch that used it."""
    if machine.run.is_counting and variable.fmt is not None and variable.was_used:
        x = variable.value
        machine.run.recorder.weights(
            layer_of_variable(variable.name), variable.name, x.format, x.carrier
        )
