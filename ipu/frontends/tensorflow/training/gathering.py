"""What replicas have, side by side on every replica: nothing is added, no bit changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.frontends.tensorflow.engine.node import marked
from ipu.frontends.tensorflow.engine.values import numbers
from ipu.frontends.tensorflow.kernels.table import Run, Site, kernel, moved

__all__ = ["concatenated", "of_last_replica", "stacked"]


def concatenated(x: Any) -> Any:
    """The tensors of all replicas one after the other along their first axis."""
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


def _joint(composite: str, together: Any) -> None:
    @kernel(composite, rounding="none", is_any=True, keeps=True, is_joint=True)
    def build(site: Site) -> Run:
        def run(inputs: Sequence[Sequence[Any]]) -> list[Any]:
            values = [value for (value,) in inputs]
            carriers = [numbers(value) for value in values]
            return [moved(values[0], lambda _: together(carriers))] * len(values)

        return run


_joint("CrossReplicaConcat", np.concatenate)
_joint("CrossReplicaStack", np.stack)
_joint("CrossReplicaLast", lambda carriers: carriers[-1])
