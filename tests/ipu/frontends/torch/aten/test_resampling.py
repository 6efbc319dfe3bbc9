"""Interpolation and uneven averages against binary64 (differential); what is exact stays (law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.aten.bits import numbers, on_machine, same
from tests.ipu.frontends.torch.framework import machine, torch

pytest.importorskip("ipu.frontends.torch.aten.resampling")
functional = torch.nn.functional

CASES = {
    "linear": ((2, 3, 7), {"size": 11, "mode": "linear"}),
    "bilinear": ((2, 3, 5, 6), {"size": (9, 4), "mode": "bilinear"}),
    "bilinear by a factor": ((2, 3, 5, 6), {"scale_factor": 2, "mode": "bilinear"}),
    "corners": ((2, 3, 5, 6), {"size": (9, 4), "mode": "bilinear", "align_corners": True}),
    "bicubic": ((1, 2, 5, 6), {"size": (9, 11), "mode": "bicubic"}),
    "trilinear": ((1, 2, 3, 4, 5), {"size": (5, 6, 7), "mode": "trilinear"}),
    "nearest": ((2, 3, 5, 6), {"size": (9, 4), "mode": "nearest"}),
    "nearest-exact": ((2, 3, 7), {"scale_factor": 3, "mode": "nearest-exact"}),
}


def check(function, x):
    wide = x.double().requires_grad_()
    expected = function(wide)
    slopes = torch.randn(expected.shape, dtype=torch.float64).float()
    expected.backward(slopes.double())
    x = x.clone().requires_grad_()
    with machine("f32", f32_denormals="ieee") as run:
        result = function(x)
        result.backward(slopes)
    assert run.report()["host"]["elements"] == 0
    torch.testing.assert_close(result.double(), expected, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(x.grad.double(), wide.grad, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_interpolation(name):
    shape, options = CASES[name]
    check(lambda x: functional.interpolate(x, **options), numbers(*shape))


@pytest.mark.parametrize(("shape", "size"), [((2, 3, 7, 5), (3, 2)), ((1, 2, 3, 4), (5, 3))])
def test_averages_over_uneven_windows(shape, size):
    check(lambda x: functional.adaptive_avg_pool2d(x, size), numbers(*shape))


def test_neighbours_with_the_weight_one_are_copied():
    x = numbers(1, 1, 4, 3)
    same(on_machine(lambda: functional.interpolate(x, size=(4, 3), mode="bilinear")), x.numpy())


def test_an_infinity_reaches_its_neighbours_alone():
    x = torch.zeros(1, 1, 6)
    x[..., 0] = float("inf")
    with machine("f32"):
        y = functional.interpolate(x, size=12, mode="linear")
    assert torch.isinf(y[..., :2]).all()
    assert torch.equal(y[..., 3:], torch.zeros(1, 1, 9))
