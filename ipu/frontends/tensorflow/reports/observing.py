"""What a machine that counts is told by nodes: kinds, exponents, losses, updates, constants.

Nothing here changes a value or draws a number, so a run that is observed has the same bits.

A loss is a tensor with one element at which gradients begin. Where that is the product of a tensor
and a number, which is a power of two above 1 or known to its runs alone, the tensor is the loss and
the number its scale. A loss that nothing reads is not computed, so it is not told.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from fpsim.array import Array
from ipu.frontends.common.account import counted_name, fit
from ipu.frontends.common.recorder import Recorder
from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.frontends.tensorflow.engine.node import Node
from ipu.frontends.tensorflow.engine.resources import Variable
from ipu.frontends.tensorflow.engine.trace import losses_of
from ipu.frontends.tensorflow.kernels.table import Entry, Run, Site
from ipu.frontends.tensorflow.reports.layers import layer_of_variable

__all__ = ["note_weights", "observed", "watch"]

#: Nodes through which a number reaches the loss that it scales.
_PASSING = frozenset(("Cast", "Identity", "ReadVariableOp", "Reshape"))
#: Where a number comes from that its runs decide.
_UNKNOWN = frozenset(("Placeholder", "VarHandleOp", "ReadVariableOp"))


def observed(site: Site, entry: Entry | None, run: Run) -> Run:
    """The kernel of a node, telling what its results are; as it is where the machine counts not."""
    machine = site.machine
    if machine.recorder is None or (entry is not None and entry.is_joint):
        return run
    losses, scalings = _losses(site.node.op.graph)
    forward = site.node.forward
    for index, _ in enumerate(site.node.outputs if forward is None else ()):
        if (site.node.name, index) in losses:
            run = _noting_loss(machine, machine.recorder, run, index)
    if forward is not None and forward.name in scalings and site.node.type == "Mul":
        run = _noting_scale(machine.recorder, run)
    if entry is not None and site.node.type == "Cast" and site.direction == "optimizer":
        run = _noting_constant(site, run)
    return _noting_results(site, _kind(site.node, entry), machine.recorder, run)


def _kind(node: Node, entry: Entry | None) -> str:
    """Of an operation, as `ipu.frontends.common.account` has them."""
    if entry is None or not (node.has_floats or node.is_update):
        return "integer"
    if entry.on_host and not (entry.name == "PyFunc" and not node.inputs):
        return "host"
    is_move = entry.rounding.startswith(("none", "to nearest on the host", "on the host"))
    return "exact" if is_move else "machine"


def _noting_results(site: Site, kind: str, recorder: Recorder, run: Run) -> Run:
    name = counted_name(site.layer, site.direction)
    account, operation = site.machine.account, site.node.type

    def noted_run(*values: Any) -> Any:
        before = account.noted
        result = run(*values)
        arrays = [x for x in (result if isinstance(result, tuple) else (result,))
                  if isinstance(x, Array)]  # fmt: skip
        if account.noted == before:  # a kernel that leaves the machine notes that itself
            written = values[0].value if not arrays and _is_array(values) else None
            size = sum(x.size for x in arrays) if written is None else written.size
            account.add(kind, operation, size)
        if kind != "exact":
            for x in arrays:
                recorder.result(name, x)
        return result

    return noted_run


def _is_array(values: tuple[Any, ...]) -> bool:
    """Whether the first value is a variable of floating-point numbers."""
    return bool(values) and isinstance(values[0], Variable) and values[0].fmt is not None


# Losses -----------------------------------------------------------------------------------------


def _losses(graph: Any) -> tuple[set[tuple[str, int]], set[str]]:
    """Tensors of a graph that are losses, and the products that scale one."""
    losses, scalings = set(), set()
    for name, index in losses_of(graph):
        op = graph.get_operation_by_name(name)
        unscaled = _unscaled(op)
        if unscaled is None:
            losses.add((name, index))
        else:
            losses.add((unscaled.op.name, unscaled.value_index))
            scalings.add(name)
    return losses, scalings


def _unscaled(op: Any) -> Any:
    """What a loss scale multiplies in this node; None where the node is no such product."""
    if op.type != "Mul":
        return None
    left, right = op.inputs
    pairs = [(loss, _number(factor)) for loss, factor in ((left, right), (right, left))]
    scaled = [(loss, value) for loss, value in pairs if value is not None]
    if len(scaled) != 1:
        return None
    ((loss, value),) = scaled
    return loss if math.isnan(value) or _is_scale(value) else None


def _number(tensor: Any) -> float | None:
    """A number of the program's, NaN for one that its runs decide; None for what is computed."""
    while tensor.op.type in _PASSING and tensor.op.inputs:
        tensor = tensor.op.inputs[0]
    if tensor.op.type == "Placeholder":
        captured = [outer for outer, inner in tensor.graph.captures if inner is tensor]
        tensor = captured[0] if captured else tensor
    value = tf.get_static_value(tensor) if tensor.dtype != tf.resource else None
    if value is not None and np.size(value) == 1:
        return float(np.reshape(value, ()))
    return math.nan if tensor.op.type in _UNKNOWN else None


def _is_scale(value: float) -> bool:
    return 1 < value < math.inf and math.frexp(value)[0] == 0.5


def _noting_loss(machine: Machine, recorder: Recorder, run: Run, index: int) -> Run:
    def noted_run(*values: Any) -> Any:
        result = run(*values)
        loss = result[index] if isinstance(result, tuple) else result
        recorder.loss(machine.step, float(loss.carrier.reshape(())))
        return result

    return noted_run


def _noting_scale(recorder: Recorder, run: Run) -> Run:
    """The gradient of a product that scales the loss is the scale."""

    def noted_run(*values: Any) -> Any:
        result = run(*values)
        if isinstance(result, Array) and result.size == 1:
            scale = float(result.carrier.reshape(()))
            recorder.scale = scale if _is_scale(scale) else 1.0
        return result

    return noted_run


# Constants ----------------------------------------------------------------------------------------


def _noting_constant(site: Site, run: Run) -> Run:
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
    if machine.recorder is not None:
        layer = layer_of_variable(variable.name)
        variable.watch = partial(_note_update, machine.recorder, layer, variable.name)


def _note_update(
    recorder: Recorder, layer: str, name: str, before: Array, term: Array, after: Array
) -> None:
    if isinstance(before, Array) and isinstance(term, Array):
        recorder.update(layer, name, after.format, before.carrier, term.carrier, after.carrier)


def note_weights(machine: Machine, variable: Variable) -> None:
    """Tell of the values of a variable that is trained, after a launch that used it."""
    if machine.recorder is not None and variable.fmt is not None and variable.was_used:
        x = variable.value
        machine.recorder.weights(
            layer_of_variable(variable.name), variable.name, x.format, x.carrier
        )
