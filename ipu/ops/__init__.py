"""The table of primitives: forward rule, one backward rule per argument, unit and cost.

A new primitive is one more `Primitive`, and one more name here. Backward rules run through the same
device verbs and the same units as the forward pass, in the format of the forward pass.

Source    docs/semantics.md §5 (units) and §6 (orders and roundings of primitives).
"""

from ipu.ops.activations import dropout, gelu, relu, sigmoid, tanh
from ipu.ops.arithmetic import add, bias, divide, multiply, scale, sqrt, square, subtract
from ipu.ops.einsum import EINSUMS, einsum
from ipu.ops.moves import (
    MOVES,
    cast,
    concat,
    pad,
    recomputation_checkpoint,
    reshape,
    strided_slice,
    transpose,
)
from ipu.ops.norms import batch_norm, group_norm, layer_norm, normalise
from ipu.ops.pooling import average_pool, max_pool
from ipu.ops.primitive import Primitive
from ipu.ops.products import PRODUCTS, conv2d, conv2d_transpose, matmul, matmul_bias
from ipu.ops.random import RANDOM, normal, shifted_normal, truncated_normal, uniform
from ipu.ops.reductions import reduce_max, reduce_mean, reduce_sum
from ipu.ops.resampling import RESAMPLING, resample
from ipu.ops.scatter import (
    SCATTERS,
    embedding_bag,
    embedding_bag_max,
    gather,
    scatter_add,
    scatter_max,
    scatter_min,
    scatter_multiply,
    scatter_subtract,
    segment_max,
    segment_mean,
    segment_min,
    segment_multiply,
    segment_sum,
)
from ipu.ops.softmax import (
    log_softmax,
    softmax,
    softmax_cross_entropy,
    softmax_cross_entropy_dense,
)

__all__ = [
    "PRIMITIVES", "add", "average_pool", "batch_norm", "bias", "cast", "concat", "conv2d",
    "conv2d_transpose", "divide", "dropout", "einsum", "embedding_bag", "embedding_bag_max",
    "gather", "gelu", "group_norm", "layer_norm", "log_softmax", "matmul", "matmul_bias",
    "max_pool", "multiply", "normal", "normalise", "pad", "recomputation_checkpoint",
    "reduce_max", "reduce_mean", "reduce_sum", "relu", "resample", "reshape", "scale",
    "scatter_add", "scatter_max", "scatter_min", "scatter_multiply", "scatter_subtract",
    "segment_max", "segment_mean", "segment_min", "segment_multiply", "segment_sum",
    "shifted_normal", "sigmoid", "softmax", "softmax_cross_entropy", "softmax_cross_entropy_dense",
    "sqrt", "square", "strided_slice", "subtract", "tanh", "transpose", "truncated_normal",
    "uniform",
]  # fmt: skip

#: Every primitive by name.
PRIMITIVES: dict[str, Primitive] = {
    p.name: p
    for p in (
        add, bias, subtract, multiply, divide, square, sqrt, scale,
        relu, tanh, sigmoid, gelu, dropout,
        softmax, log_softmax, softmax_cross_entropy, softmax_cross_entropy_dense,
        reduce_sum, reduce_mean, reduce_max,
        max_pool, average_pool,
        batch_norm, normalise, group_norm, layer_norm,
        *MOVES, *PRODUCTS, *EINSUMS, *SCATTERS, *RESAMPLING, *RANDOM,
    )
}  # fmt: skip
