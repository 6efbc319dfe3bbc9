"""Activations of exponentials and logarithms are near binary64 (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.torch.framework import machine, torch

functional = torch.nn.functional

FUNCTIONS = {
    "elu": lambda x: functional.elu(x, alpha=0.75),
    "elu in place": lambda x: functional.elu(x * 1, alpha=0.75, inplace=True),
    "selu": functional.selu,
    "celu": lambda x: functional.celu(x, alpha=2.0),
    "softplus": functional.softplus,
    "softplus with beta": lambda x: functional.softplus(x, beta=3.0, threshold=10),
    "mish": functional.mish,
    "logsigmoid": functional.logsigmoid,
}


def points():
    """Both signs, from 1e-6 to 100."""
    magnitudes = np.geomspace(1e-6, 100, 97)
    return torch.tensor(np.r_[magnitudes, -magnitudes], dtype=torch.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_slopes_in_binary32(name):
    function, x = FUNCTIONS[name], points()
    wide = x.double().requires_grad_()
    expected = function(wide)
    expected.sum().backward()
    x.requires_grad_()
    with machine("f32", f32_denormals="ieee") as run:
        result = function(x)
        result.sum().backward()
    assert run.report()["host"]["elements"] == 0
    torch.testing.assert_close(result.double(), expected, rtol=4e-6, atol=1e-42)
    # mish has a zero slope near -1.19, where no relative bound holds.
    torch.testing.assert_close(x.grad.double(), wide.grad, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_in_binary16_are_rounded_once(name):
    function, x = FUNCTIONS[name], points().half()
    with machine() as run:
        result = function(x)
    exact = function(x.double())
    if "celu" in name or "selu" in name or "place" in name:
        bound = 2.0**-10  # torch gives the machine more than one operation
    else:
        bound = 2.0**-11 * 1.001
    error = (result.double() - exact).abs()
    assert (error <= exact.abs() * bound + 2.0**-25).all()
    assert run.report()["native"] == 0
