"""Losses that are quadratic near zero and linear beyond: each piece of the elements that take it.

torch's own words for them compute both pieces of all elements and select. A square that nothing
selects may overflow there, which torch's kernels never compute. So elements beyond the quadratic
piece are zeros in it; the results, and their order of operations, are those of torch's words.

Source    torch/_decomp/decompositions.py and torch/_refs/nn/functional/__init__.py of PyTorch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp.decompositions import apply_loss_reduction, pw_cast_for_opmath
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND
from torch._prims_common.wrappers import elementwise_type_promotion_wrapper

__all__ = ["PIECEWISE"]

#: How torch numbers a mean, which a loss is where nothing else is asked for.
_MEAN = 1


def _smooth_l1_loss(
    x: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN, beta: float = 1.0
) -> torch.Tensor:
    size = (x - target).abs()
    is_near = size < beta
    near = size.masked_fill(~is_near, 0)
    loss = torch.where(is_near, 0.5 * near**2 / beta, size - 0.5 * beta)
    return apply_loss_reduction(loss, reduction)


def _smooth_l1_loss_backward(
    gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int, beta: float
) -> torch.Tensor:
    difference = x - target
    is_near = difference.abs() < beta
    shared = _share(difference, reduction) * gradient
    near = difference.masked_fill(~is_near, 0)
    return torch.where(is_near, shared * near / beta, shared * torch.sign(difference))


def _huber_loss(
    x: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN, delta: float = 1.0
) -> torch.Tensor:
    size = (x - target).abs()
    is_near = size < delta
    near = size.masked_fill(~is_near, 0)
    loss = torch.where(is_near, 0.5 * near * near, delta * (size - 0.5 * delta))
    return apply_loss_reduction(loss, reduction)


def _huber_loss_backward(
    gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int, delta: float
) -> torch.Tensor:
    share = _share(x, reduction)
    difference = x - target
    is_below, is_above = difference < -delta, difference > delta
    near = difference.masked_fill(is_below | is_above, 0)
    return torch.where(
        is_below, -share * gradient * delta,
        torch.where(is_above, share * gradient * delta, share * near * gradient),
    )


def _share(x: torch.Tensor, reduction: int) -> float:
    """What a term is of the loss: one over their number in a mean."""
    return 1.0 / x.numel() if reduction == _MEAN else 1.0


_promoted = elementwise_type_promotion_wrapper(
    type_promoting_args=("x", "target"),
    type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT,
)
#: By overload; numbers are promoted as torch does it in each.
PIECEWISE: dict[Any, Any] = {
    torch.ops.aten.smooth_l1_loss.default: pw_cast_for_opmath(_smooth_l1_loss),
    torch.ops.aten.smooth_l1_loss_backward.default: pw_cast_for_opmath(_smooth_l1_loss_backward),
    torch.ops.aten.huber_loss.default: _promoted(_huber_loss),
    torch.ops.aten.huber_loss_backward.default: pw_cast_for_opmath(_huber_loss_backward),
}
