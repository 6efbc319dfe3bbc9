"""Accumulation as one node of the graph, and the update after G of them.

The node adds a gradient to an accumulator; on the machine it is `ipu.learn.accumulate.Accumulator`,
by TensorFlow alone the same formula in numpy. The count of mini-batches and the accumulators are
variables; after G mini-batches a branch applies the accumulated gradients and clears them.

Source    graphcore/tensorflow, tensorflow/python/ipu/gradient_accumulation.py; docs/semantics.md
          §9 (order of the operations).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.ops import handle_data_util

from fpsim.array import Array
from ipu.frontends.tensorflow.engine.node import marked
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel
from ipu.frontends.tensorflow.training.reductions import GradientAccumulationReductionMethod
from ipu.learn.accumulate import Accumulation, Accumulator
from ipu.learn.variables import Variable
from ipu.run.account import counted_name

__all__ = ["Accumulators", "accumulator_dtype", "label"]

Pair = tuple[Any, Any]
#: None: each variable's own, a type, or a function of the variable.
Dtype = Any


def label(variable: Any) -> str:
    """A variable's name without the number of its output."""
    return str(variable.name).partition(":")[0]


def accumulator_dtype(variable: Any, dtype: Dtype) -> tf.DType:
    """Type of a variable's accumulator."""
    if dtype is None:
        kind = variable.dtype
    else:
        kind = dtype(variable) if callable(dtype) and not _is_type(dtype) else dtype
    return tf.as_dtype(kind).base_dtype


def _is_type(dtype: Any) -> bool:
    return isinstance(dtype, tf.DType | type)


class Accumulators:
    """The accumulators of an optimiser, made when its first gradients come.

    count      G; method: SUM, MEAN or RUNNING_MEAN.
    dtype      of the accumulators: None, a type, or a function of the variable.
    placement  of the optimiser's state, for the plan: offload_state, shard_state.
    """

    def __init__(
        self, count: int, method: GradientAccumulationReductionMethod, dtype: Dtype,
        **placement: bool,
    ) -> None:
        self.count, self.method, self.dtype = count, method, dtype
        self.placement = placement
        self._accumulators: dict[Any, Any] = {}
        self._counters: dict[Any, Any] = {}

    def add(self, pairs: Sequence[Pair]) -> list[Any]:
        """Operations that add gradients to the accumulators of their variables."""
        with marked(phase="update"):
            n = self._counter().read_value()
        return [self._added(n, gradient, variable) for gradient, variable in pairs]

    def update(
        self, variables: Sequence[Any], added: Sequence[Any],
        apply: Callable[[list[Pair]], Any],
    ) -> Any:
        """The operation that applies and clears the accumulated gradients after G mini-batches."""
        counter = self._counter()
        with tf.control_dependencies(added), marked(phase="update"):
            mini_batches = counter.assign_add(1, read_value=True)

        def applied() -> Any:
            with marked(direction="optimizer"):
                pairs = [(self._accumulator(v).read_value(), v) for v in variables]
                with tf.control_dependencies([g for g, _ in pairs]):
                    done = apply(pairs)
                    _check_updates(tf.compat.v1.get_default_graph())
                with tf.control_dependencies([] if done is None else [done]):
                    cleared = [
                        self._accumulator(v).assign(tf.zeros(v.shape, g.dtype), read_value=False)
                        for g, v in pairs
                    ]
                    cleared.append(counter.assign(0, read_value=False))
            with tf.control_dependencies(cleared):
                return tf.constant(1)

        with marked(phase="update", **self.placement):
            branch = tf.cond(tf.equal(mini_batches, self.count), applied, lambda: tf.constant(0))
        return branch.op

    def _added(self, n: Any, gradient: Any, variable: Any) -> Any:
        accumulator = self._accumulator(variable)
        name = label(variable)
        summands = self._summands(gradient)
        with marked(phase="update"):
            value = accumulator.read_value()
        with marked(kernel="Accumulate", rule=True, method=self.method.value,
                    mini_batches=self.count, accumulation=self.count, variable=name,
                    direction="backward"):
            total = tf.numpy_function(
                self._formula, [value, n, *summands], accumulator.dtype,
                name=f"{name.replace('/', '_')}_accumulate",
            )
        total.set_shape(variable.shape)
        return accumulator.assign(total, read_value=False)

    def _summands(self, gradient: Any) -> list[Any]:
        """A gradient, or what it is the sum of where each of these is scaled first."""
        is_sum = self.method is GradientAccumulationReductionMethod.SUM
        if is_sum or gradient.op.type != "AddN":
            return [gradient]
        return list(gradient.op.inputs)

    def _formula(self, value: Any, n: Any, *summands: Any) -> NDArray[Any]:
        decay, share = self._how().factors(int(n))
        scaled = [g if share == 1 else g * g.dtype.type(share) for g in summands]
        gradient = sum(scaled[1:], start=scaled[0])
        held = value if decay == 1 else value * value.dtype.type(decay)
        return np.asarray(held + gradient.astype(value.dtype), value.dtype)

    def _how(self) -> Accumulation:
        return Accumulation(self.count, self.method.name)

    def _accumulator(self, variable: Any) -> Any:
        key = variable.ref()
        if key not in self._accumulators:
            kind = accumulator_dtype(variable, self.dtype)
            shape, name = tuple(variable.shape), f"{label(variable)}/accumulator"
            self._accumulators[key] = _zeros(shape, kind, name)
        return self._accumulators[key]

    def _counter(self) -> Any:
        with tf.init_scope():
            graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        if graph not in self._counters:
            self._counters[graph] = _zeros((), tf.int32, "mini_batches")
        return self._counters[graph]


def _check_updates(graph: Any) -> None:
    """Refuse updates by gradients of another type than their variable's.

    Raises    TypeError, as TensorFlow words it.
    """
    for op in graph.get_operations():
        if not op.type.startswith("ResourceApply"):
            continue
        data = handle_data_util.get_resource_handle_data(op.inputs[0])
        held = tf.as_dtype(data.shape_and_type[0].dtype)
        if held != op.get_attr("T"):
            raise TypeError(
                f"Input 'grad' of '{op.type}' Op has type {op.get_attr('T').name} that does not "
                f"match type {held.name} of argument 'var'. Cast the accumulated gradient to the "
                "variable's type before the update, or leave out dtype."
            )


def _zeros(shape: tuple[int, ...], kind: Any, name: str) -> Any:
    """A variable of zeros outside of what is being traced."""
    with tf.init_scope():
        if tf.executing_eagerly():
            return tf.Variable(tf.zeros(shape, kind), trainable=False, name=name)
        return tf.compat.v1.Variable(
            lambda: tf.zeros(shape, kind), trainable=False, use_resource=True, name=name
        )


@kernel("Accumulate", rounding="as ipu.learn.accumulate says", is_any=True, keeps=True)
def _accumulate(site: NodeSite) -> Run:
    marks, device = site.node.marks, site.device
    method = GradientAccumulationReductionMethod(marks["method"])
    how = Accumulation(marks["mini_batches"], method.name)
    name = f"{counted_name(site.layer, site.direction)}/gradient"

    def run(value: Array, n: Any, *summands: Array) -> Array:
        variable = Variable(value, device, name)
        accumulator = Accumulator(how, (variable,), (value,))
        return accumulator.add([(summands, variable)], more=int(n)).values[0]

    return run
