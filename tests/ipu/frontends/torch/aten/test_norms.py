"""Norms against torch in binary32, and what their backward reads (differential, law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.aten.bits import numbers, on_machine
from tests.ipu.frontends.torch.framework import agree_on_machine, machine, torch

nn = torch.nn
X = numbers(4, 6, 5, 5) + 3.0
CASES = {
    "batch": lambda: nn.BatchNorm2d(6),
    "batch, not affine": lambda: nn.BatchNorm2d(6, affine=False),
    "batch, no statistics": lambda: nn.BatchNorm2d(6, track_running_stats=False),
    "instance": lambda: nn.InstanceNorm2d(6, affine=True),
    "layer": lambda: nn.LayerNorm([5, 5]),
    "layer, not affine": lambda: nn.LayerNorm(5, elementwise_affine=False),
    "group": lambda: nn.GroupNorm(3, 6),
    "evaluation": lambda: nn.BatchNorm2d(6).eval(),
}


def results(make, x=X):
    norm = make()
    torch.manual_seed(0)
    for p in norm.parameters():
        nn.init.uniform_(p)
    x = x.clone().requires_grad_()
    y = norm(x)
    slope = torch.linspace(-1, 1, y.numel()).reshape(y.shape)
    slopes = torch.autograd.grad(y, [x, *norm.parameters()], slope)
    return [y, *slopes, *(b.float() for b in norm.buffers())]


@pytest.mark.parametrize("name", CASES)
def test_results_gradients_and_statistics(name):
    agree_on_machine(lambda: results(CASES[name]), {"rtol": 5e-5, "atol": 5e-5})


def test_the_backward_reads_what_the_forward_computed(monkeypatch):
    """With stochastic rounding a second computation of the whitened values has other bits."""
    from ipu.frontends.torch.values import Memory

    def step(x):
        return results(CASES["batch"], x)[1]

    first, second = (on_machine(step, X.half().float(), sr=True) for _ in range(2))
    assert torch.equal(first, second)
    monkeypatch.setattr(Memory, "saved", lambda self, x: None)
    again = on_machine(step, X.half().float(), sr=True)
    assert not torch.equal(first, again)
    assert (first - again).abs().max() < 0.1


@pytest.mark.parametrize("dim", [0, 1])
def test_weights_of_a_length_and_a_direction(dim):
    v = numbers(4, 6)
    g = numbers(*((4, 1) if dim == 0 else (1, 6)), seed=1)

    def weight(a, b):
        return torch._weight_norm(a, b, dim)

    wide = [x.double().requires_grad_() for x in (v, g)]
    weight(*wide).square().sum().backward()
    leaves = [x.requires_grad_() for x in (v, g)]
    with machine("f32", f32_denormals="ieee") as run:
        weight(*leaves).square().sum().backward()
    assert run.report()["host"]["elements"] == 0
    for ours, exact in zip(leaves, wide, strict=True):
        torch.testing.assert_close(ours.grad.double(), exact.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["batch", "instance", "layer, not affine", "group", "evaluation"])
@pytest.mark.parametrize("policy", ["f32", "p=f16,c=f16"])
def test_half_images_with_float32_weights_give_what_torch_gives(name, policy):
    make = CASES[name]
    x = (X - 3.0).half()
    expected = results(make, x)
    with machine(policy):
        got = results(make, x)
    assert [t.dtype for t in got] == [t.dtype for t in expected]
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)


def test_autocast_and_a_gradient_scaler_train_a_network_with_batch_norm():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    x, losses = numbers(16, 6), []
    with machine(nanoo=True) as session:
        for _ in range(20):
            optimiser.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = (net(x).squeeze(1) - x.sum(1)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
            losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert session.report()["native"] == 0
