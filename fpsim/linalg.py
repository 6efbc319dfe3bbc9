"""Linear algebra of Arrays: sums and products, rounded per operation or through matrix units."""

from fpsim.convolutions import conv2d, conv2d_input_gradient, conv2d_weight_gradient
from fpsim.rounded_products import dot, mean, rounded_matmul, sum  # noqa: A004  (numpy's name)
from fpsim.unit_products import k_split, matmul

__all__ = [
    "conv2d", "conv2d_input_gradient", "conv2d_weight_gradient", "dot", "k_split", "matmul", "mean",
    "rounded_matmul", "sum",
]
