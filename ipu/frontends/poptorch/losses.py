"""The loss of a model: what the backward pass starts from.

PopTorch looks for it in the graph: the result of `identity_loss`, or else of the one loss function
of torch. A model need not return it.

Source    Graphcore's PopTorch, python/ops.py (identity_loss) and its user guide (custom losses).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from ipu.frontends.poptorch.blocks import listener

__all__ = ["Losses", "identity_loss"]

_NAMES = """
    binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy
    ctc_loss gaussian_nll_loss hinge_embedding_loss huber_loss kl_div l1_loss
    margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss
    multilabel_soft_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
    triplet_margin_loss triplet_margin_with_distance_loss
"""
FUNCTIONS = frozenset(getattr(functional, name) for name in _NAMES.split())


def identity_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    """Marks a tensor as the loss, reduced: "sum", "mean" or "none".

    >>> identity_loss(torch.tensor([1.0, 3.0]), "mean")
    tensor(2.)
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"identity_loss takes a torch.Tensor, got {type(x).__name__}")
    if reduction not in ("sum", "mean", "none"):
        raise ValueError(
            f"reduction={reduction!r}: Unsupported reduction type! use sum, mean, none"
        )
    # The result of "none" must be a tensor of its own, for the mark is on it.
    reduced = x.view_as(x) if reduction == "none" else getattr(x, reduction)()
    told = listener()
    if told is not None:
        told.mark_loss(reduced)
    return reduced


class Losses:
    """The losses that a forward pass computed."""

    def __init__(self) -> None:
        self._of_functions: list[torch.Tensor] = []
        self._marked: list[torch.Tensor] = []

    def note(self, function: Any, result: Any) -> None:
        """A call of torch returned this."""
        if function in FUNCTIONS:
            self._of_functions.append(result)

    def mark(self, tensor: torch.Tensor) -> None:
        """A tensor that `identity_loss` returned."""
        self._marked.append(tensor)

    @property
    def final(self) -> torch.Tensor:
        """The loss.

        Raises    RuntimeError where there is none, or more than one.
        """
        if self._marked:
            return self._marked[-1]
        if not self._of_functions:
            raise RuntimeError(
                "Couldn't find a loss in graph: call one of torch's loss functions in the model, "
                "or mark the tensor: poptorch.identity_loss(loss, reduction='none')"
            )
        if len(self._of_functions) > 1:
            raise RuntimeError(
                f"Multiple independent losses found in graph: {len(self._of_functions)} loss "
                "functions; combine them and mark the result: poptorch.identity_loss(loss, "
                "reduction='sum')"
            )
        return self._of_functions[0]
