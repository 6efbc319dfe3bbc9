"""A node of a graph as kernels see it: attributes, types, its place in the user's program.

layer       scope of the node, without the prefix of gradients and of loops: policies and counts go
            by it.
place       name by which random bits are numbered (docs/semantics.md §2).
direction   backward for what TensorFlow builds as a gradient; optimizer for updates of variables
            and what an optimiser computes for them; else forward.
marks       what the front end noted with `marked`: the attributes of the node that begin with
            `_fpsim_`. A gradient takes those of its forward node that it lacks.

Source    docs/semantics.md §2 and §6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import ops

from ipu.frontends.tensorflow.engine.values import is_floating

__all__ = ["MARK", "Node", "marked"]

MARK = "_fpsim_"
_GRADIENTS = re.compile(r"^(?:.*/)?(?:gradients(?:_\d+)?|gradient_tape)/")
_LOOPS = re.compile(r"^(?:(?:while|cond)(?:_\d+)?/)+")
_UPDATES = re.compile(
    r"^(Resource(Sparse)?Apply|ResourceScatter(Add|Sub|Mul|Max|Min|Update)|"
    r"Assign(Add|Sub)?VariableOp)"
)


@contextmanager
def marked(**marks: Any) -> Iterator[None]:
    """The nodes that are built inside carry these marks: integers, truth values or texts.

    An inner mark of a name wins over an outer one.
    """
    attributes = {MARK + name: _attribute(value) for name, value in marks.items()}
    with ops.get_default_graph()._attr_scope(attributes):
        yield


def _attribute(value: Any) -> Any:
    if isinstance(value, bool):
        return attr_value_pb2.AttrValue(b=value)
    if isinstance(value, int):
        return attr_value_pb2.AttrValue(i=value)
    return attr_value_pb2.AttrValue(s=str(value).encode())


def _mark_value(attribute: Any) -> Any:
    kind = attribute.WhichOneof("value")
    value = getattr(attribute, kind)
    return value.decode() if kind == "s" else value


class Node:
    """A node that a program executes."""

    def __init__(self, op: tf.Operation) -> None:
        self.op = op
        self.name: str = op.name
        self.type: str = op.type
        self.inputs: tuple[Any, ...] = tuple(op.inputs)
        self.outputs: tuple[Any, ...] = tuple(op.outputs)
        #: The node whose gradient this one belongs to.
        self.forward: tf.Operation | None = op._original_op or _named_by_scope(op)
        self.is_gradient = self.forward is not None or bool(_GRADIENTS.match(self.name))
        self.is_update = bool(_UPDATES.match(self.type))
        self.direction = (
            "optimizer" if self.is_update else "backward" if self.is_gradient else "forward"
        )
        self.layer = _scope(_of_reader(op) if self.forward is None else self.forward.name)
        self.marks = _marks(op)
        if self.forward is not None:
            self.marks = _marks(self.forward) | self.marks

    def attr(self, name: str) -> Any:
        """An attribute of the node."""
        return self.op.get_attr(name)

    @property
    def has_floats(self) -> bool:
        """Whether an input or an output is a floating-point tensor."""
        return any(is_floating(t.dtype) for t in (*self.inputs, *self.outputs))


def _named_by_scope(op: tf.Operation) -> tf.Operation | None:
    """The node whose name is the scope of a tape's gradient that kept no tensor of it."""
    if "gradient_tape/" not in op.name:
        return None
    scope = _GRADIENTS.sub("", op.name).rpartition("/")[0]
    try:
        return op.graph.get_operation_by_name(scope) if scope else None
    except KeyError:
        return None


def _of_reader(op: tf.Operation) -> str:
    """The name of a node; of a constant that is named after its reader, as `mul/y`, that one's.

    The gradients of its reader may read it too.
    """
    name = str(op.name)
    owner = name.rpartition("/")[0]
    if op.type != "Const" or not owner:
        return name
    readers = {reader.name for tensor in op.outputs for reader in tensor.consumers()}
    others = {reader for reader in readers if not _GRADIENTS.match(reader)}
    return owner if others == {owner} else name


def _scope(name: str) -> str:
    stem = _LOOPS.sub("", _GRADIENTS.sub("", name))
    return stem.rpartition("/")[0] or stem


def _marks(op: tf.Operation) -> dict[str, Any]:
    attributes = op.node_def.attr
    return {
        name[len(MARK) :]: _mark_value(attributes[name])
        for name in attributes
        if name.startswith(MARK)
    }
