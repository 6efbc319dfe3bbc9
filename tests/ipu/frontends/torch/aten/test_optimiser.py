"""What optimisers are made of, bit for bit in binary16 (differential), and casts (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.torch.aten.bits import half, numbers, on_machine, same
from tests.ipu.frontends.torch.framework import machine, torch

X, Y, Z = (numbers(40, seed=s) for s in range(3))
A, B, C = map(half, (X, Y, Z))
H = np.float16


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, y, z: x.addcmul(y, z), A + B * C),
        (lambda x, y, z: x.addcmul(y, z, value=0.1), A + (B * C) * H(0.1)),
        (lambda x, y, z: x.clone().addcdiv_(y, z, value=-0.1), A + (B / C) * H(-0.1)),
        (lambda x, y, z: x.lerp(y, 0.1), A + (B - A) * H(0.1)),
        (lambda x, y, z: x.lerp(y, z), A + (B - A) * C),
    ],
)
def test_each_step_is_rounded_once(function, expected):
    same(on_machine(function, X, Y, Z), expected)


def test_casts_round_once_and_raise_flags():
    with machine() as session:
        x = torch.tensor([1e5, 0.1]) * 1.0
        narrow = x.half()
    assert narrow.dtype == torch.float16
    assert narrow.tolist() == [65504.0, float(H(0.1))]
    assert session.device.status.oflo
    with machine(sr=True):
        drawn = {tuple((torch.full((20,), 0.1) * 1.0).half().tolist()) for _ in range(3)}
    assert len(drawn) == 3


def test_integers_become_floats_on_the_host():
    with machine("f16") as session:
        x = torch.arange(5).float() / 4
    assert x.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert session.report()["host"]["elements"] == 0


@pytest.mark.parametrize(
    ("options", "scale"), [({"nanoo": True}, 512.0), ({"found_inf": "status"}, 512.0)]
)
def test_a_gradient_scaler_in_binary16(options, scale):
    p = torch.nn.Parameter(torch.ones(3))
    optimiser = torch.optim.SGD([p], lr=0.1)
    with machine("p=f16,c=f16", **options) as session:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=100)
        for slope in (1.0, 100.0):  # 1024 · 100 is beyond binary16
            optimiser.zero_grad()
            scaler.scale((p * slope).sum()).backward()
            scaler.step(optimiser)
            scaler.update()
    assert scaler.get_scale() == scale
    assert session.report()["steps"] == 2
    assert "OFLO 0x1" in session.report()["status"]


def test_a_gradient_scaler_that_cannot_see_overflow_is_refused():
    p = torch.nn.Parameter(torch.ones(3))
    optimiser = torch.optim.SGD([p], lr=0.1)
    with machine("p=f16,c=f16"):
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        scaler.scale(p.sum()).backward()
        with pytest.raises(RuntimeError, match="overflow in binary16 saturates here; use machine"):
            scaler.step(optimiser)


def test_a_gradient_scaler_unscales_and_sees_infinities():
    p = torch.nn.Parameter(torch.ones(3))
    optimiser = torch.optim.SGD([p], lr=0.1)
    with machine() as session:
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=100)
        for slope in (1.0, float("inf"), 1.0):
            optimiser.zero_grad()
            scaler.scale((p * slope).sum()).backward()
            scaler.step(optimiser)
            scaler.update()
    assert scaler.get_scale() == 4.0
    torch.testing.assert_close(p.detach(), torch.full((3,), 0.8))
    assert session.report()["steps"] == 3
