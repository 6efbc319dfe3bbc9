"""Losses, loss scales and first gradients: binary32, or rounded with flags (differential, law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import machine, mlp, torch

from ipu.run.changes import Changes  # isort: skip

roots = pytest.importorskip("ipu.frontends.torch.roots")
F = torch.nn.functional

X, Y = torch.linspace(-1, 1, 24).reshape(4, 6), torch.tensor([0, 1, 2, 0])
T = torch.linspace(-2, 1, 12).reshape(4, 3)
LOSSES = {
    "cross-entropy": lambda out: F.cross_entropy(out, Y),
    "mean square": lambda out: F.mse_loss(out, T),
    "mean": lambda out: (out - T).square().mean(),
    "sum": lambda out: (out * 0.5).square().sum() / 12,
    "absolute": lambda out: F.l1_loss(out, T),
    "rows": lambda out: F.cross_entropy(out, Y, reduction="none").mean(),
    "parts": lambda out: (0.5 * F.mse_loss(out, T) + 0.5 * out.mean()) / 2,
    "huber": lambda out: F.huber_loss(out, T),
}


def gradients(name, scale, policy="f16", small=2.0**-14, **options):
    """Gradients of a small net whose logits' gradients are tiny, under a loss scale."""
    net = mlp()
    with machine(policy, changes=Changes(scale), count=True, **options) as session:
        (LOSSES[name](net(X)) * small).backward()
    return [p.grad for p in net.parameters()], session


@pytest.mark.parametrize("name", LOSSES)
def test_a_scale_beyond_the_range_of_the_format_moves_no_digit(name):
    """Nothing is subnormal or overflows with 2^14 and with 2^20, so both give the same bits."""
    (expected, _), (got, session) = gradients(name, 2.0**14), gradients(name, 2.0**20)
    assert not session.device.status.oflo
    assert "overflow" not in {row["becomes"] for row in session.report()["constants"]}
    for p, q in zip(got, expected, strict=True):
        assert torch.equal(p, q)
    assert session.report()["loss_scale"]["present"] == 2.0**20


@pytest.mark.parametrize("name", LOSSES)
def test_scaled_gradients_are_those_of_binary32(name):
    got, _ = gradients(name, 2.0**20)
    wide, _ = gradients(name, 1.0, "f32")
    for p, q in zip(got, wide, strict=True):
        assert float((p - q).norm() / q.norm()) < 5e-3


def test_the_present_scale_is_what_was_asked_for():
    _, session = gradients("cross-entropy", 1024.0, small=1.0)
    row = session.report()["loss_scale"]
    assert row["present"] == 1024.0
    assert session.report()["losses"][0] < 10
    _, plain = gradients("cross-entropy", 1.0, small=1.0)
    assert row["highest_safe"] == plain.report()["loss_scale"]["highest_safe"]


def test_the_highest_safe_scale_is_safe_and_twice_it_is_not():
    _, session = gradients("cross-entropy", 1.0, small=1.0)
    highest = session.report()["loss_scale"]["highest_safe"]
    assert highest > 65504
    assert not gradients("cross-entropy", highest, small=1.0)[1].device.status.oflo
    assert gradients("cross-entropy", 4 * highest, small=1.0)[1].device.status.oflo


# Losses of float16 tensors ----------------------------------------------------------------------


def own_loss(scale=1.0, weight=1.0, offset=0.0, **options):
    net = mlp().half()
    with machine(changes=Changes(scale), count=True, **options) as session:
        loss = F.cross_entropy(net(X.half()), Y) * weight + offset
        loss.backward()
    return net, session, loss


def test_the_first_gradient_of_a_float16_loss_is_rounded_with_flags():
    _, session, _ = own_loss(2.0**20)
    assert session.device.status.oflo
    report = session.report()
    assert report["loss_scale"]["highest_safe"] is None
    assert report["first"][0]["flag"] == "OVERFLOW"
    assert report["first"][0]["direction"] == "backward"


def test_the_first_gradient_bounds_the_highest_safe_scale():
    _, session, _ = own_loss(weight=2.0**-12)  # gradients are small, the first one is 1
    row = session.report()["loss_scale"]
    assert row["highest_safe"] == 2.0**15
    _, session, _ = own_loss(1024.0, weight=2.0**-12)
    row = session.report()["loss_scale"]
    assert (row["present"], row["highest_safe"]) == (1024.0, 2.0**15)


def test_a_loss_times_its_scale_bounds_the_highest_safe_scale():
    _, session, loss = own_loss(offset=512.0)
    assert 512 < loss.item() < 1024
    assert session.report()["loss_scale"]["highest_safe"] == 2.0**6
    _, session, _ = own_loss(4.0, offset=512.0)
    assert session.report()["loss_scale"]["highest_safe"] == 2.0**6


def test_a_first_gradient_draws_nothing():
    """k of later operations of its place is as without it."""
    _, session, _ = own_loss(sr=True)
    counts = {p: k for p, k in session.clock._counts.items() if p.layer == "aten.mul"}
    backward = [k for p, k in counts.items() if p.direction == "backward"]
    assert backward == [1]  # the product with the weight, alone


def test_a_trap_of_a_first_gradient_names_the_line():
    with pytest.raises(FloatingPointError) as caught:
        own_loss(2.0**20, traps=True)
    assert "first gradient" in caught.value.__notes__[0]
    assert "test_roots.py:" in caught.value.__notes__[0]


def test_gradients_of_the_program_are_multiplied_in_binary32():
    x = torch.ones(4, requires_grad=True)
    with machine("f16", changes=Changes(2.0**20)) as session:
        y = x * 0.5
        y.backward(torch.full((4,), 2.0**-30))
    assert not session.device.status.oflo
    assert x.grad.tolist() == [2.0**-31] * 4  # beyond binary16 without the scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_scaler_multiplies_a_loss_in_binary32(dtype):
    w = torch.full((4,), 2.0**-6, dtype=dtype, requires_grad=True)
    with machine("f16") as session:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
        scaled = scaler.scale((w * w).sum())
        scaled.backward()
    assert scaled.item() == 2.0**20 * 4 * 2.0**-12
    assert bool(session.device.status.oflo) == (dtype == torch.float16)
    if dtype == torch.float32:
        assert w.grad.tolist() == [2.0**15] * 4


def test_gradients_of_leaves_without_module_or_optimiser_are_unscaled():
    """Fresh ones in every step, which may have the identity of earlier ones."""
    results = []
    for scale in (1.0, 2.0**10):
        w, slopes = torch.ones(3, requires_grad=True), []
        with machine("f32", changes=Changes(scale)):
            for i in range(5):
                x = torch.full((3,), float(i), requires_grad=True)
                (w * x).square().sum().backward()
                slopes.append(x.grad.tolist())
                with torch.no_grad():
                    w -= 0.01 * w.grad
                    w.grad = None
                del x
        results.append((slopes, w.tolist()))
    assert results[0] == results[1]
