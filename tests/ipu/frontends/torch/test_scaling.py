"""Gradient scalers, beside torch itself (differential, law)."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.ipu.frontends.torch.framework import machine, torch

F = torch.nn.functional


def amp(context, init, *, half=False, steps=8, passes=1, slopes=None):
    """Scales, skipped steps and unscaled norms of a training with autocast and a scaler."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = torch.randn(64, 16), torch.randint(0, 4, (64,))
    scaler = torch.amp.GradScaler("cpu", init_scale=init, growth_interval=2)
    scales, skips, norms = [], [], []
    slopes = slopes or [1.0] * passes
    with context:
        for _ in range(steps):
            optimiser.zero_grad()
            for slope in slopes:
                with torch.autocast("cpu", dtype=torch.float16):
                    loss = F.cross_entropy(net(x), y) * slope
                scaler.scale(loss).backward()
            scaler.unscale_(optimiser)
            norm = torch.stack([p.grad.detach().norm() for p in net.parameters()]).norm()
            before = net[0].weight.detach().clone()
            scaler.step(optimiser)
            scaler.update()
            scales.append(scaler.get_scale())
            skips.append(torch.equal(before, net[0].weight.detach()))
            norms.append(float(norm))
    return scales, skips, norms


@pytest.mark.parametrize("options", [{"nanoo": True}, {"found_inf": "status"}], ids=str)
@pytest.mark.parametrize("init", [2.0**10, 2.0**22])
@pytest.mark.parametrize("policy", ["f32", "f16"])
def test_a_scaler_under_autocast_takes_the_scales_and_steps_of_torch(init, policy, options):
    scales, skips, norms = amp(nullcontext(), init)
    got_scales, got_skips, got_norms = amp(machine(policy, **options), init)
    assert got_scales == scales
    assert got_skips == skips
    assert any(skips) == (init > 2**20)
    for norm, expected, skipped in zip(got_norms, norms, skips, strict=True):
        if not skipped:
            assert norm == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("policy", ["f32", "f16", "mixed"])
def test_a_scaler_of_a_pass_that_saturates_is_refused(policy):
    with pytest.raises(
        RuntimeError,
        match=r"overflow in binary16 saturates here; use machine\(nanoo=True\), where it gives NaN,"
        r" or machine\(found_inf='status'\)",
    ):
        amp(machine(policy), 1024.0)


def test_a_scaler_of_a_pass_in_binary32_runs():
    def run(context):
        w = torch.nn.Parameter(torch.ones(3))
        optimiser = torch.optim.SGD([w], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        with context:
            for _ in range(2):
                with torch.autocast("cpu", dtype=torch.float16, enabled=False):
                    loss = (w * 3.0).sum()
                scaler.scale(loss).backward()
                scaler.step(optimiser)
                scaler.update()
        return w.tolist(), scaler.get_scale()

    assert run(machine()) == run(nullcontext())


class InvalidAside(torch.autograd.Function):
    """Its backward pass computes ∞ - ∞ beside the gradient."""

    @staticmethod
    def forward(ctx, x):
        return x * 3.0

    @staticmethod
    def backward(ctx, gradient):
        torch.full_like(gradient, torch.inf) - torch.inf
        return gradient * 3.0


@pytest.mark.parametrize(("policy", "skips"), [("f32", False), ("f16", True)])
def test_the_status_counts_where_overflow_saturates_alone(policy, skips):
    """Elsewhere a scaler looks at values, as torch's does."""
    w = torch.nn.Parameter(torch.ones(3))
    optimiser = torch.optim.SGD([w], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4)
    with machine(policy, found_inf="status"):
        scaler.scale(InvalidAside.apply(w).sum()).backward()
        scaler.step(optimiser)
        scaler.update()
    assert (w.tolist() == [1.0, 1.0, 1.0]) == skips


def test_operands_in_a_narrow_format_are_of_the_pass():
    """Results are binary32, but the operands of the products of the backward pass are cast."""
    w = torch.nn.Parameter(torch.ones(3, 3))
    optimiser = torch.optim.SGD([w], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with machine("c=e4m3fn,out=f32", target="hypothetical"):
        scaler.scale((torch.ones(2, 3) @ w).sum()).backward()
        with pytest.raises(RuntimeError, match="overflow in e4m3fn saturates here"):
            scaler.step(optimiser)


@pytest.mark.parametrize("slopes", [[1.0, 2.0**16], [2.0**16, 1.0]], ids=str)
def test_every_pass_of_a_step_is_looked_at(slopes):
    """The first pass overflows and the second does not, and the other way round."""
    scales, skips, _ = amp(nullcontext(), 2.0**10, slopes=slopes, steps=2)
    assert skips[0]
    got = amp(machine(found_inf="status"), 2.0**10, slopes=slopes, steps=2)
    assert got[:2] == (scales, skips)
    assert amp(machine(nanoo=True), 2.0**10, slopes=slopes, steps=2)[:2] == (scales, skips)
