"""`tensorflow.python.ipu.horovod`: ranks and collectives for tensors.

Importing it needs MPI, unless the environment names another transport.

Source    graphcore/tensorflow, tensorflow/python/ipu/horovod; Horovod's API.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu.frontends import horovod
from ipu.frontends.horovod import (
    Average,
    Sum,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from ipu.frontends.tensorflow.engine.launch import failures
from ipu.frontends.tensorflow.engine.subnormals import keeping_subnormals
from ipu.frontends.tensorflow.workers import popdist_strategy
from ipu.frontends.tensorflow.workers import strategies as ipu_horovod_strategy

__all__ = [
    "Average", "Sum", "allgather", "allreduce", "broadcast", "broadcast_variables", "init",
    "ipu_horovod_strategy", "is_initialized", "local_rank", "local_size", "popdist_strategy",
    "rank", "shutdown", "size",
]

#: The vendor's name is a package; its module is found by its own name.
__path__: list[str] = []


def allreduce(
    tensor: Any, average: bool | None = None, name: str | None = None, op: Any = None
) -> Any:
    """The sum or mean of a tensor over all processes; the mean where nothing is said."""
    return _on_host(lambda x: horovod.allreduce(x, average, name, op), tensor, name, True)


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Any:
    """One process's tensor, on all."""
    return _on_host(lambda x: horovod.broadcast(x, root_rank, name), tensor, name, True)


def allgather(tensor: Any, name: str | None = None) -> Any:
    """The tensors of all processes one after the other along the first axis."""
    return _on_host(lambda x: horovod.allgather(x, name), tensor, name, False)


def broadcast_variables(variables: Any, root_rank: int) -> Any:
    """Give variables the values that they have on one process; in TensorFlow 1 an operation."""
    if tf.executing_eagerly():
        horovod.broadcast_variables(variables, root_rank)
        return None
    assigned: list[Any] = []
    for variable in variables:
        with tf.control_dependencies(assigned[-1:]):
            assigned.append(variable.assign(broadcast(variable, root_rank)).op)
    return tf.group(*assigned)


def _on_host(
    collective: Callable[[Any], Any], tensor: Any, name: str | None, keeps_shape: bool
) -> Any:
    """A node that calls a collective; in TensorFlow 2 its result."""
    size()  # refuses before init
    tensor = tf.convert_to_tensor(tensor)
    if tf.executing_eagerly():
        return tf.convert_to_tensor(collective(tensor.numpy()))

    def run(x: Any) -> Any:
        try:
            with keeping_subnormals():
                return collective(x)
        except BaseException as error:
            failures.append(error)  # TensorFlow's runtime keeps its text alone
            raise

    result = tf.numpy_function(run, [tensor], tensor.dtype, name=name)
    result.set_shape(tensor.shape if keeps_shape else [None, *tensor.shape[1:]])
    return result
