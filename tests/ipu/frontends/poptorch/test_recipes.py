"""Recipes of blocks in PopTorch's models: plans, replicas, and PyTorch's own training (law)."""

from __future__ import annotations

import warnings

import pytest

from tests.ipu.frontends.poptorch.framework import (
    STRATEGIES,
    Net,
    bits,
    options,
    poptorch,
    same,
    session_of,
    torch,
    train,
)


def parts(replicas=1):
    """A layer with its loss, samples of a step, and labels."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(40, 24)
    x, labels = torch.randn(16 * replicas, 40), torch.randint(0, 24, (16 * replicas,))
    return layer, x, labels


class WithLoss(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, labels=None):
        y = self.layer(x)
        return y, torch.nn.functional.cross_entropy(y, labels)


def by_poptorch(policy, replicas, steps=2):
    layer, x, labels = parts(replicas)
    with session_of(policy, seed=3) as session:
        run_options = options(count=1, replicas=replicas, sr=False)
        optimiser = poptorch.optim.SGD(layer.parameters(), lr=0.125)
        model = poptorch.trainingModel(WithLoss(layer), run_options, optimiser)
        for _ in range(steps):
            model(x, labels)
        weights = {name: v.clone() for name, v in model.model.layer.state_dict().items()}
    return weights, session


def by_torch(policy, replicas, steps=2):
    """Replicas are the micro-batches of a step, whose gradients are averaged."""
    layer, x, labels = parts(replicas)
    with session_of(policy, seed=3):
        model, optimiser = WithLoss(layer), torch.optim.SGD(layer.parameters(), lr=0.125)
        for _ in range(steps):
            optimiser.zero_grad()
            for a, b in zip(x.chunk(replicas), labels.chunk(replicas), strict=True):
                (model(a, b)[1] / replicas).backward()
            optimiser.step()
    return layer.state_dict()


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("policy", ["mxfp8", "nvfp4-plain"])
def test_a_training_has_the_bits_of_pytorchs(policy, replicas):
    model, session = by_poptorch(policy, replicas)
    for name, x in by_torch(policy, replicas).items():
        assert torch.equal(model[name], x), name
    assert session.device.blocks.outside == {}
    assert any(name.startswith("B200") for name in session.device.units_used)


def test_no_plan_moves_a_bit_of_a_stochastic_recipe():
    histories = []
    for strategy in ("unsplit", "pipelined"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with session_of("nvfp4", seed=3):
                run_options = options(STRATEGIES[strategy](), sr=False)
                histories.append(bits(train(run_options, net=Net(), half=False)[0]))
    assert same(*histories)


def test_replicas_of_a_process_have_one_history_of_delayed_scales():
    model, session = by_poptorch("fp8-delayed", 2, steps=3)
    again, _ = by_poptorch("fp8-delayed", 2, steps=3)
    assert all(torch.equal(x, again[name]) for name, x in model.items())
    scales = {operand: scale for _, operand, scale in session.device.blocks.delayed}
    assert set(scales) == {"x", "w", "dy"}
    largest = parts(2)[1].bfloat16().abs().max().item()
    assert set(scales["x"].history) == {largest}
