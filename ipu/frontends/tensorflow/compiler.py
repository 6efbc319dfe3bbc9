"""`ipu_compiler.compile`: a function of TensorFlow 1 as a program of the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph

from ipu.frontends.tensorflow.engine.current import current
from ipu.frontends.tensorflow.engine.launch import launch_node
from ipu.frontends.tensorflow.engine.replica_set import dealt
from ipu.frontends.tensorflow.engine.trace import noting_losses
from ipu.frontends.tensorflow.facade import watch_sessions

__all__ = ["compile", "compiled_node"]


def compile(  # noqa: A001  the vendor's name
    computation: Callable[..., Any], inputs: Sequence[Any] | None = None
) -> Any:
    """Trace a function once and launch it whenever a session asks for its results.

    inputs      tensors, numbers or structures of them: the arguments of the function.

    What the function returns comes back as the vendor gives it: a list of one tensor where it
    returns one, a list where it returns several, the structure where that is nested, an operation
    where it returns nothing or operations alone.

    Raises      RuntimeError in eager mode; NotImplementedError for variables that are no resources,
                and under a PopDistStrategy of several processes.
    """
    return compiled_node(computation, inputs)


def compiled_node(
    computation: Callable[..., Any], inputs: Sequence[Any] | None = None, *, streams: bool = False
) -> Any:
    """As `compile`; with streams, tensors behind the first are there as soon as they are computed.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "ipu_compiler.compile builds graphs of TensorFlow 1; in TensorFlow 2 call a "
            "tf.function inside strategy.run"
        )
    if dealt.processes > 1:
        dealt.refuse_graphs()
    if inputs is not None and not isinstance(inputs, (list, tuple)):
        raise TypeError("inputs must be a list")
    watch_sessions()
    graph = func_graph.FuncGraph("compiled")
    outer = [tf.convert_to_tensor(x) for x in tf.nest.flatten(list(inputs or ()))]
    with graph.as_default():
        placeholders = [_placeholder(graph, tensor, i) for i, tensor in enumerate(outer)]
        arguments = tf.nest.pack_sequence_as(list(inputs or ()), placeholders)
        with noting_losses(current().loss_scale):
            returned = computation(*arguments)
        structure, tensors = _outputs(returned)
        graph.control_outputs = [x for x in _flat(returned) if isinstance(x, tf.Operation)]
        if not tensors:  # a program has a result, so that there is something to wait for
            with tf.control_dependencies(graph.control_outputs):
                tensors = [tf.constant(0)]
        graph.outputs = [graph.capture(tensor) for tensor in tensors]
    captures = graph.captures
    _check_variables(captures)
    graph.inputs = placeholders + [inner for _, inner in captures]
    flat = outer + [tensor for tensor, _ in captures]
    outputs = launch_node(graph, flat, streams=streams)
    return outputs[0].op if structure is None else tf.nest.pack_sequence_as(structure, outputs)


def _check_variables(captures: Any) -> None:
    """Refuse variables of the kind that use_resource=False makes."""
    for outer, _ in captures:
        op = outer.op.inputs[0].op if outer.op.type == "Identity" else outer.op
        if op.type in ("Variable", "VariableV2"):
            raise NotImplementedError(
                "Non-resource Variables are not supported inside XLA computations (operator name: "
                f"{op.name}); make it with use_resource=True"
            )


def _placeholder(graph: Any, tensor: Any, number: int) -> Any:
    return tf.compat.v1.placeholder(tensor.dtype, tensor.shape, name=f"input_{number}")


def _flat(returned: Any) -> list[Any]:
    return [] if returned is None else tf.nest.flatten(returned)


def _outputs(returned: Any) -> tuple[Any, list[Any]]:
    """The structure of the results (None: no tensors), and its tensors."""
    leaves = _flat(returned)
    if any(leaf is None for leaf in leaves):
        raise ValueError(
            f"the computation returns None inside of {returned!r}; return tensors and operations, "
            "or nothing at all"
        )
    tensors = [tf.convert_to_tensor(x) for x in leaves if not isinstance(x, tf.Operation)]
    if not tensors:
        return None, []
    if not isinstance(returned, (list, tuple, dict)):
        return tensors, tensors
    if len(tensors) == len(leaves):
        return returned, tensors
    if any(isinstance(x, (list, tuple, dict)) for x in returned):
        raise TypeError("operations go side by side with tensors, not inside of a structure")
    return tensors, tensors
