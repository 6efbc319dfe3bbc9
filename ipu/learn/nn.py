"""Layers. They compute in the format of their input and know no other.

`in_layer` gives each the formats of its policy, and `products` the unit for its products.
"""

from __future__ import annotations

from ipu.learn import ops, products
from ipu.learn.initialisers import Initialiser, zeros
from ipu.learn.scopes import in_layer
from ipu.learn.tensor import Tensor
from ipu.learn.variables import get_variable

__all__ = ["dense", "relu"]

relu = ops.relu


def dense(x: Tensor, units: int, op_name: str, *, initializer: Initialiser | None = None) -> Tensor:
    """x @ weights + biases, with variables of the input's format in the scope `op_name`.

    Shapes    x (batch, n): result (batch, units).
    Rounding  the product as the matrix unit does, once into the format; the sum once.
    """
    if len(x.shape) != 2:
        raise ValueError(f"dense takes a matrix (batch, n), got shape {x.shape}; reshape it")

    def body(x: Tensor) -> Tensor:
        weights = get_variable("weights", [x.shape[1], units], x.dtype, initializer)
        biases = get_variable("biases", [units], x.dtype, zeros)
        return ops.bias(products.matmul(x, weights), biases)

    return in_layer(op_name, x, body)
