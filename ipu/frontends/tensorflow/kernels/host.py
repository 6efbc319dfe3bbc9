"""Nodes of the host: queues, iterators, and what has no floating-point numbers.

Nodes without floating-point tensors round nothing. The usual ones are numpy's operations on the
same integers; every other one is executed by TensorFlow's own kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto
from tensorflow.python.eager import context
from tensorflow.python.eager.execute import quick_execute
from tensorflow.python.framework import op_def_registry, ops
from tensorflow.python.ops import script_ops

from ipu.frontends.tensorflow.engine.values import enter, leave
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel, single

__all__ = ["eager_kernel", "host_function", "host_kernel", "own_kernel"]

#: numpy's functions that give what TensorFlow's kernels give for integers and truth values.
_EXACT = {
    "AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply, "Less": np.less,
    "LessEqual": np.less_equal, "Greater": np.greater, "GreaterEqual": np.greater_equal,
    "LogicalAnd": np.logical_and, "LogicalOr": np.logical_or, "LogicalNot": np.logical_not,
    "Maximum": np.maximum, "Minimum": np.minimum,
}


def host_kernel(site: NodeSite) -> Run:
    """The kernel of a node without floating-point tensors."""
    exact = _EXACT.get(site.node.type)
    return exact if exact is not None else own_kernel(site)


def own_kernel(
    site: NodeSite, name: str = "", attributes: Mapping[str, Any] | None = None,
    kinds: Mapping[Any, Any] | None = None,
) -> Run:
    """TensorFlow's own kernel, on the processor; inputs and outputs are ndarrays.

    The arguments are those of `eager_kernel`.
    """
    execute = eager_kernel(site, name, attributes, kinds)

    def run(*values: Any) -> Any:
        with context.eager_mode():
            results = execute(values)
            return single([r.numpy() for r in results]) if results else ()

    return run


def eager_kernel(
    site: NodeSite, name: str = "", attributes: Mapping[str, Any] | None = None,
    kinds: Mapping[Any, Any] | None = None,
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """TensorFlow's own kernel of tensors, or what becomes one; it runs where TensorFlow is eager.

    name          another type of node.
    attributes    that this type has instead of the node's.
    kinds         data types that stand for the node's.
    """
    op, instead, kinds = site.node.op, attributes or {}, kinds or {}
    name = name or site.node.type
    definition = op.op_def if name == site.node.type else op_def_registry.get(name)
    pairs: list[Any] = []
    for attribute in definition.attr:
        key = attribute.name
        value = instead[key] if key in instead else op.get_attr(key)
        pairs += [key, _plain(_mapped(value, kinds))]
    flat, count = tuple(pairs), len(site.node.outputs)

    def run(values: Sequence[Any]) -> Sequence[Any]:
        tensors = [
            v if isinstance(v, ops.EagerTensor) else ops.convert_to_tensor(v) for v in values
        ]
        results: Sequence[Any] = quick_execute(name, count, tensors, flat, context.context())
        return results if count else ()

    return run


def _mapped(value: Any, kinds: Mapping[Any, Any]) -> Any:
    if isinstance(value, list):
        return [_mapped(item, kinds) for item in value]
    return kinds.get(value, value) if isinstance(value, tf.DType) else value


def _plain(value: Any) -> Any:
    """An attribute as TensorFlow's eager kernels take it."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if hasattr(value, "as_datatype_enum"):
        return value.as_datatype_enum
    return tf.TensorShape(value) if isinstance(value, TensorShapeProto) else value


@kernel("PyFunc", "EagerPyFunc", rounding="on the host", is_any=True, keeps=True, on_host=True)
def _python(site: NodeSite) -> Run:
    """A queue's end, or what the user computes on the host in the middle of a program."""
    function = host_function(site)
    kinds = [t.dtype for t in site.node.inputs]
    formats = [site.format_of(t.dtype) for t in site.node.outputs]
    device = site.device

    def run(*values: Any) -> Any:
        results = function(*(leave(v, kind) for v, kind in zip(values, kinds, strict=True)))
        if not formats:
            return ()
        flat = results if isinstance(results, list | tuple) else [results]
        return single([
            np.asarray(value) if fmt is None else enter(device, value, fmt)
            for value, fmt in zip(flat, formats, strict=True)
        ])

    return run


def host_function(site: NodeSite) -> Run:
    """The function of ndarrays of a PyFunc node; that of `tf.py_function` is executed eagerly."""
    token = site.attr("token").decode()
    function: Any = script_ops._py_funcs.get(token)
    if not isinstance(function, script_ops.EagerFunc):
        return function  # type: ignore[no-any-return]
    if function._is_grad_func and site.machine.replicas > 1:
        raise NotImplementedError(
            f"node {site.node.name} is the gradient of a tf.py_function, of which TensorFlow keeps "
            f"one call, and {site.machine.replicas} replicas make as many; use operations of "
            "TensorFlow, tf.custom_gradient around the function, or one replica"
        )

    def eagerly(*values: Any) -> Any:
        with context.eager_mode():
            tensors = [tf.constant(value) for value in values]
            try:
                results = function(None, token, tensors)
            except KeyError as error:
                if not function._is_grad_func:
                    raise
                raise NotImplementedError(
                    f"node {site.node.name} is the gradient of a tf.py_function in a loop, of "
                    "which TensorFlow keeps the last call alone; use operations of TensorFlow"
                ) from error
            return tf.nest.map_structure(np.asarray, results)

    return eagerly


@kernel("HistogramFixedWidth", rounding="none: TensorFlow's own kernel counts, on the host")
def _histogram(site: NodeSite) -> Run:
    kernel, kind = own_kernel(site), site.node.inputs[0].dtype
    return lambda x, limits, count: kernel(leave(x, kind), leave(limits, kind), count)


@kernel("IteratorGetNext", rounding="to nearest on the host", is_any=True, keeps=True)
def _next(site: NodeSite) -> Run:
    types, shapes = site.attr("output_types"), site.attr("output_shapes")
    formats = [site.format_of(t.dtype) for t in site.node.outputs]
    device, feeding = site.device, site.run.feeding

    def run(iterator: Any) -> Any:
        start = time.perf_counter()
        leaves = iterator.take(types, shapes)
        feeding.note(time.perf_counter() - start)
        feeding.look(leaves)
        return single([
            np.asarray(value) if fmt is None else enter(device, value, fmt)
            for value, fmt in zip(leaves, formats, strict=True)
        ])

    return run
