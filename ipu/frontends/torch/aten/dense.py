"""Which products of a program are those of a dense layer: a recipe computes them in blocks.

forward           one operand is a weight: a parameter, a view or a cast of it.
input gradient    in a backward pass, one operand has the memory of such a weight.
weight gradient   in a backward pass, one operand has the memory of what a weight was multiplied
                  with, and the forward operation of the autograd node had a weight.

Batches of products are likewise, and convolutions of one group; a convolution knows its kernel.
Products of two activations, as attention has, of two weights, and of vectors are none of these.

Source    docs/semantics.md §6 (recipes).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from fpsim.array import Array
from ipu.frontends.torch.aten.factors import Factors
from ipu.frontends.torch.aten.table import Call
from ipu.frontends.torch.values import ACTIVATION, WEIGHT
from ipu.ops.dense import LayerRecipe
from ipu.ops.passes import DensePass, Which, product

__all__ = ["dense_bias", "dense_convolution", "dense_product"]

#: Autograd nodes that leave every number as it is, or cast it.
_VIEWS = ("T", "Transpose", "Permute", "View", "UnsafeView", "ReshapeAlias", "Alias", "Slice",
          "Select", "Split", "SplitWithSizes", "Chunk", "Unbind", "Clone", "ToCopy", "Squeeze",
          "Unsqueeze", "Narrow", "AsStrided", "Detach", "Expand", "Unflatten", "Copy")
#: The first operand of a product among the inputs of its node.
_FIRST = {"MmBackward": 0, "AddmmBackward": 1, "BmmBackward": 0}
#: Views from a parameter to a product.
_LONGEST = 16


def dense_product(
    call: Call, operation: str, tensors: tuple[Any, Any], factors: Factors
) -> Array | None:
    """A product of matrices by the recipe of its layer; None: it has none, or is none of a weight.

    tensors    that the factors were read from.
    """
    how = call.recipe
    if how is None:
        return None
    is_backward = call.direction == "backward"
    of = (_backward if is_backward else _forward)(call, *tensors)
    if of is None:
        call.note_outside(operation)
        return None
    rounding = {"scale": factors.scale, "to": factors.to}
    return product(
        call.device, factors.x, factors.y, of, how, partials=factors.partials, **rounding
    )


def dense_bias(call: Call, x: torch.Tensor, y: torch.Tensor) -> dict[str, LayerRecipe]:
    """The option of a forward product with a bias, whose right operand is a weight."""
    how = call.recipe
    if how is None:
        return {}
    is_dense = x.ndim == y.ndim == 2 and call.direction != "backward"
    if is_dense and _forward(call, x, y) == DensePass(Which.FORWARD, is_left=False):
        return {"recipe": how}
    call.note_outside("addmm")
    return {}


def dense_convolution(
    call: Call, operation: str, x: torch.Tensor, w: torch.Tensor, groups: int, *, is_usual: bool
) -> dict[str, LayerRecipe]:
    """The option of a convolution whose kernel is a weight, or of its gradients.

    is_usual    it is no transposed one.
    """
    how = call.recipe
    if how is None:
        return {}
    is_backward = call.direction == "backward"
    roles = call.memory.role_of(w) == WEIGHT if is_backward else _forward(call, x, w) == (
        DensePass(Which.FORWARD, is_left=False))
    if is_usual and groups == 1 and roles:
        return {"recipe": how}
    call.note_outside(operation)
    return {}


# Forward ----------------------------------------------------------------------------------------


def _forward(call: Call, x: Any, y: Any) -> DensePass | None:
    left, right = _strength(call, x), _strength(call, y)
    if left == right:
        return None
    weight, activation = (x, y) if left > right else (y, x)
    call.memory.give_role(weight, WEIGHT)
    call.memory.give_role(activation, ACTIVATION)
    return DensePass(Which.FORWARD, left > right)


def _strength(call: Call, x: torch.Tensor) -> int:
    """2 for a weight of a module, 1 for another leaf that needs a gradient, 0 for neither."""
    if call.memory.role_of(x) == WEIGHT:
        return 2
    leaf = x if x.is_leaf and x.requires_grad else _leaf_of(x.grad_fn)
    if leaf is None:
        return 0
    is_weight = isinstance(leaf, torch.nn.Parameter) or call.memory.role_of(leaf) == WEIGHT
    return 2 if is_weight else 1


def _leaf_of(node: Any) -> torch.Tensor | None:
    """The leaf that a tensor is a view or a cast of."""
    for _ in range(_LONGEST):
        if node is None:
            return None
        name = type(node).__name__
        if name == "AccumulateGrad":
            leaf: torch.Tensor = node.variable
            return leaf
        if name.partition("Backward")[0] not in _VIEWS:
            return None
        node = next((n for n, _ in node.next_functions if n is not None), None)
    return None


# Backward ---------------------------------------------------------------------------------------


def _backward(call: Call, x: Any, y: Any) -> DensePass | None:
    roles = call.memory.role_of(x), call.memory.role_of(y)
    if WEIGHT in roles:
        both = roles[0] == roles[1]
        return None if both else DensePass(Which.INPUT_GRADIENT, roles[0] == WEIGHT)
    if ACTIVATION not in roles or not _had_weight(call):
        return None
    is_left = roles[0] == ACTIVATION
    if roles[0] == roles[1]:  # a gradient's memory was that of an activation
        is_left = not call.memory.is_gradient(x)
    return DensePass(Which.WEIGHT_GRADIENT, is_left)


def _had_weight(call: Call) -> bool:
    """Whether the forward operation of the node that runs had a weight among its operands."""
    return any(
        leaf is not None and (isinstance(leaf, torch.nn.Parameter) or leaf.requires_grad)
        for leaf in map(_leaf_of, _operands_of(torch._C._current_autograd_node()))
    )


def _operands_of(node: Any) -> Iterator[Any]:
    """The nodes of both operands of a product's node."""
    name = type(node).__name__.rstrip("0123456789")
    first = _FIRST.get(name)
    if first is not None:
        for following, _ in node.next_functions[first : first + 2]:
            yield following
