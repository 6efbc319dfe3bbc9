"""Clipping and gradient scalers see averages (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import torch

from ipu.frontends.torch.replicas.clipping import before_use_of_gradients  # isort: skip


def test_clippers_and_scalers_see_averages():
    averaged = []

    def average(parameters):
        averaged.append(len(list(parameters)))
        for p in own:
            p.grad.fill_(2.0)

    own = [torch.nn.Parameter(torch.zeros(5)) for _ in range(2)]
    for p in own:
        p.grad = torch.zeros(5)
    optimiser = torch.optim.SGD(own, lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    before = torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.unscale_
    with before_use_of_gradients(average):
        assert float(torch.nn.utils.clip_grad_norm_(iter(own), 1e9)) == pytest.approx(40**0.5)
        torch.nn.utils.clip_grad_value_(own[0], 1.0)
        assert own[0].grad.tolist() == [1.0] * 5
        scaler.scale(torch.ones(()))
        scaler.step(optimiser)
    assert averaged == [2, 1, 2]
    assert own[0].tolist() == [-1.0] * 5
    assert before == (torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.unscale_)
