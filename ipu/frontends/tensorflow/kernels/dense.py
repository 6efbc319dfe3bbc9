"""Which products of a graph are those of a dense layer: a recipe computes them in blocks.

forward           one operand reads a variable, as it is or cast, reshaped or turned.
input gradient    the gradient of such a product whose other operand reads the variable.
weight gradient   the gradient of such a product whose other operand is what the variable was
                  multiplied with.

Batches of products (BatchMatMulV2) are likewise, an Einsum of two operands, and a convolution whose
kernel reads a variable. Products of two activations and depthwise or transposed convolutions are
none of these.

Source    docs/semantics.md §6 (recipes); TensorFlow, math_grad.py, _MatMulGrad: which operand of
          a gradient is the activation.
"""

from __future__ import annotations

from typing import Any

from ipu.frontends.tensorflow.kernels.table import NodeSite
from ipu.ops.passes import DensePass, Which

__all__ = ["has_kernel", "pass_of", "pass_of_einsum"]

_PRODUCTS = ("MatMul", "BatchMatMulV2", "BatchMatMul")

_READS = ("ReadVariableOp", "VariableV2", "Variable")
#: Operations that leave every number as it is, or cast it.
_VIEWS = ("Identity", "Cast", "Reshape", "Transpose", "StopGradient", "Squeeze", "ExpandDims",
          "Enter", "EnsureShape", "PreventGradient", "CheckNumerics", "StridedSlice", "Split")
#: Views from a variable to a product.
_LONGEST = 16


def pass_of(site: NodeSite) -> DensePass | None:
    """The pass of a product of matrices; None: it belongs to no dense layer."""
    weights = [_is_weight(tensor) for tensor in site.node.inputs[:2]]
    if site.direction != "backward":
        return DensePass(Which.FORWARD, weights[0]) if sum(weights) == 1 else None
    forward = site.node.forward
    if forward is None or forward.type not in _PRODUCTS:
        return None
    before = [_is_weight(tensor) for tensor in forward.inputs[:2]]
    if sum(before) != 1:
        return None
    if sum(weights) == 1:
        return DensePass(Which.INPUT_GRADIENT, weights[0])
    names = ("transpose_a", "transpose_b") if forward.type == "MatMul" else ("adj_x", "adj_y")
    is_turned = forward.get_attr(names[0 if before[0] else 1])
    return DensePass(Which.WEIGHT_GRADIENT, is_turned if before[0] else not is_turned)


def pass_of_einsum(site: NodeSite) -> DensePass | None:
    """The pass of a node Einsum, likewise; the gradient is the first operand of a gradient's."""
    if len(site.node.inputs) != 2:
        return None
    weights = [_is_weight(tensor) for tensor in site.node.inputs]
    if site.direction != "backward":
        return DensePass(Which.FORWARD, weights[0]) if sum(weights) == 1 else None
    forward = site.node.forward
    if forward is None or forward.type != "Einsum" or len(forward.inputs) != 2:
        return None
    if sum(map(_is_weight, forward.inputs)) != 1:
        return None
    which = Which.INPUT_GRADIENT if any(weights) else Which.WEIGHT_GRADIENT
    return DensePass(which, weights[0])


def has_kernel(site: NodeSite) -> bool:
    """Whether a node is a convolution with a variable as its kernel, or a gradient of one."""
    node = site.node.forward if site.direction == "backward" else site.node
    return node is not None and node.type == "Conv2D" and _is_weight(node.inputs[1])


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
