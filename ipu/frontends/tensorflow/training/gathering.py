"""What replicas have, side by side on every replica: nothing is added, no bit changes.

Tensors that are concatenated are those of this process's replicas; stacks and the last tensor are
of all replicas, those of other processes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.frontends.tensorflow.engine.node import marked
from ipu.frontends.tensorflow.engine.values import numbers
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel, moved

__all__ = ["concatenated", "of_all", "of_last_replica", "stacked"]


def concatenated(x: Any) -> Any:
    """The tensors of this process's replicas one after the other along their first axis."""
    return _gathered(x, "CrossReplicaConcat", np.asarray, (None, *x.shape[1:]))


def stacked(x: Any) -> Any:
    """The tensors of all replicas along a new first axis."""
    return _gathered(x, "CrossReplicaStack", lambda v: np.asarray(v)[None], (None, *x.shape))


def of_last_replica(x: Any) -> Any:
    """The tensor of the last replica."""
    return _gathered(x, "CrossReplicaLast", np.asarray, x.shape)


def _gathered(x: Any, composite: str, alone: Any, shape: Any) -> Any:
    x = tf.convert_to_tensor(x)
    with marked(kernel=composite):
        result = tf.numpy_function(alone, [x], x.dtype, name=composite)
    result.set_shape(shape)
    return result


# The machine ------------------------------------------------------------------------------------


def of_all(machine: Machine, values: Sequence[Any], node: str) -> list[Any]:
    """The values of all replicas at a node, by number."""
    return machine.replica_set.every(values, f"node {node}", machine.step)


def _joint(composite: str, together: Any, *, is_local: bool = False) -> None:
    @kernel(composite, rounding="none", is_any=True, keeps=True, is_joint=True)
    def build(site: NodeSite) -> Run:
        def run(inputs: Sequence[Sequence[Any]]) -> list[Any]:
            values = [value for (value,) in inputs]
            every = values if is_local else of_all(site.machine, values, site.node.name)
            carriers = [numbers(value) for value in every]
            return [moved(values[0], lambda _: together(carriers))] * len(values)

        return run


_joint("CrossReplicaConcat", np.concatenate, is_local=True)
_joint("CrossReplicaStack", np.stack)
_joint("CrossReplicaLast", lambda carriers: carriers[-1])
