"""Which products of a graph are those of a dense layer: a recipe computes them in blocks.

forward           one operand reads a variable, as it is or cast, reshaped or turned.
input gradient    the gradient of such a product whose other operand reads the variable.
weight gradient   the gradient of such a product whose other operand is what the variable was
                  multiplied with.

Products of two activations, batches of products (BatchMatMulV2), einsums and convolutions are none
of these.

Source    docs/semantics.md §6 (recipes); TensorFlow, math_grad.py, _MatMulGrad: which operand of
          a gradient is the activation.
"""

from __future__ import annotations

from typing import Any

from ipu.frontends.tensorflow.kernels.table import NodeSite
from ipu.ops.passes import DensePass, Which

__all__ = ["pass_of"]

_READS = ("ReadVariableOp", "VariableV2", "Variable")
#: Operations that leave every number as it is, or cast it.
_VIEWS = ("Identity", "Cast", "Reshape", "Transpose", "StopGradient", "Squeeze", "ExpandDims",
          "Enter", "EnsureShape", "PreventGradient", "CheckNumerics", "StridedSlice", "Split")
#: Views from a variable to a product.
_LONGEST = 16


def pass_of(site: NodeSite) -> DensePass | None:
    """The pass of a node MatMul; None: it belongs to no dense layer."""
    weights = [_is_weight(tensor) for tensor in site.node.inputs[:2]]
    if site.direction != "backward":
        return DensePass(Which.FORWARD, weights[0]) if sum(weights) == 1 else None
    forward = site.node.forward
    if forward is None or forward.type != "MatMul":
        return None
    before = [_is_weight(tensor) for tensor in forward.inputs[:2]]
    if sum(before) != 1:
        return None
    if sum(weights) == 1:
        return DensePass(Which.INPUT_GRADIENT, weights[0])
    is_turned = forward.get_attr("transpose_a" if before[0] else "transpose_b")
    return DensePass(Which.WEIGHT_GRADIENT, is_turned if before[0] else not is_turned)


def _is_weight(tensor: Any) -> bool:
    """Whether a tensor reads a variable."""
    for _ in range(_LONGEST):
        op = tensor.op
        if op.type in _READS:
            return True
        if op.type == "Placeholder":
            captures = getattr(op.graph, "captures", ())
            outside = next((outer for outer, inner in captures if inner is tensor), None)
            if outside is None or not hasattr(outside, "op"):
                return False
            tensor = outside
        elif op.type in _VIEWS:
            tensor = op.inputs[0]
        else:
            return False
    return False
