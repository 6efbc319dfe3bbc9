"""Layers. They compute in the format of their input and know no other."""

from __future__ import annotations

from ipu.learn import ops
from ipu.learn.initialisers import Initialiser, zeros
from ipu.learn.tensor import Tensor
from ipu.learn.variables import get_variable, variable_scope

__all__ = ["dense", "relu"]

relu = ops.relu


def dense(x: Tensor, units: int, op_name: str, *, initializer: Initialiser | None = None) -> Tensor:
    """x @ weights + biases, with variables of the input's format in the scope `op_name`.

    Shapes    x (batch, n): result (batch, units).
    Rounding  the product as the matrix unit does, once into the format; the sum once.
    """
    if len(x.shape) != 2:
        raise ValueError(f"dense takes a matrix (batch, n), got shape {x.shape}; reshape it")
    with variable_scope(op_name, use_resource=True):
        weights = get_variable("weights", [x.shape[1], units], x.dtype, initializer)
        biases = get_variable("biases", [units], x.dtype, zeros)
        return ops.bias(ops.matmul(x, weights), biases)
