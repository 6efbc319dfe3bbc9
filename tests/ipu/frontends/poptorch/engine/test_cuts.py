"""Cuts: gradients of a cut graph are those of the uncut one, also after writes in place (law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import torch

from ipu.frontends.poptorch.engine.cuts import CutMode, Cuts  # isort: skip


def forward(cuts, x, weight):
    """Two stages; the second takes a tensor twice and writes into it."""
    first = x * weight
    cuts.begin(1)
    kept = first + 1
    first.mul_(3)
    return first, (first * kept).sum()


def test_what_enters_a_stage_is_cut_once():
    x, weight = torch.arange(3.0), torch.nn.Parameter(torch.ones(3))
    cuts = Cuts()
    with CutMode(cuts, lambda function, result: None):
        _, loss = forward(cuts, x, weight)
    (inlet,) = cuts.inlets[1].values()
    assert list(cuts.used[0].values()) == [weight]
    assert not cuts.used[1]
    (slope,) = torch.autograd.grad([loss], [inlet.leaf])
    (own,) = torch.autograd.grad([inlet.origin], [weight], [slope])
    # d/dw of 3wx (wx + 1)
    assert torch.equal(own, 3 * x * (2 * x + 1))


def test_a_tensor_that_was_written_is_not_used_with_its_old_values():
    x = torch.ones(3, requires_grad=True)
    cuts = Cuts()
    with CutMode(cuts, lambda function, result: None):
        first = torch.tanh(x * 1.0)  # keeps its result for the backward pass
        cuts.begin(1)
        first.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad([first.sum()], [x])


def test_calls_are_told_with_their_results():
    seen = []
    with CutMode(Cuts(), lambda function, result: seen.append(function)):
        torch.nn.functional.mse_loss(torch.ones(2), torch.zeros(2))
    assert torch.nn.functional.mse_loss in seen
