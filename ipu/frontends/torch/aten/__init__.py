"""Tables of aten operations on the device's verbs: one file for each subject."""

from ipu.frontends.torch.aten import (
    activations,
    bags,
    conv,
    extrema,
    indexing,
    norms,
    optimiser,
    pointwise,
    pooling,
    products,
    reductions,
    resampling,
    softmax_loss,
)
from ipu.frontends.torch.aten.table import TABLE, AtenEntry, Call

__all__ = [
    "TABLE", "AtenEntry", "Call", "activations", "bags", "conv", "extrema", "indexing", "norms",
    "optimiser", "pointwise", "pooling", "products", "reductions", "resampling", "softmax_loss",
]
