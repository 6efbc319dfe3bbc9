"""Activations and gradients (differential): numpy's binary16, torch's binary64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.torch.aten.bits import half, numbers, on_machine, same
from tests.ipu.frontends.torch.framework import agree_on_machine, torch

F = torch.nn.functional
X, G = numbers(60), numbers(60, seed=1)
A, S = half(X), half(G)
H = np.float16


def slope(function):
    """The gradient of a function on the machine, for the gradient G of its result."""

    def pulled(x, g):
        x = x.clone().requires_grad_()
        (result,) = torch.autograd.grad(function(x), x, g)
        return result

    return on_machine(pulled, X, G)


def test_relu_selects():
    same(on_machine(F.relu, X), np.maximum(A, H(0)))
    same(slope(F.relu), np.where(A > 0, S, H(0)))


def test_gradients_of_tanh_and_sigmoid_follow_the_rules():
    y = half(on_machine(torch.tanh, X))
    same(slope(torch.tanh), S * (H(1) - y * y))
    y = half(on_machine(torch.sigmoid, X))
    same(slope(torch.sigmoid), S * (y * (H(1) - y)))


@pytest.mark.parametrize(
    "function", [F.gelu, F.silu, lambda x: F.gelu(x, approximate="tanh"), F.leaky_relu]
)
def test_results_and_gradients_are_near_binary64(function):
    """binary32 inside and one rounding: within a unit in the last place; gelu by tanh has more."""
    exact = function(X.double())
    wide = X.double().requires_grad_()
    (expected,) = torch.autograd.grad(function(wide), wide, G.double())
    for got, want in ((on_machine(function, X), exact), (slope(function), expected)):
        margin = want.abs() * 2.0**-9 + 2.0**-9
        assert bool(((got.double() - want).abs() <= margin).all())


@pytest.mark.parametrize("function", [F.gelu, F.silu])
def test_large_tensors_have_the_bits_of_their_pieces(function):
    """Many elements are read from tables (`ipu.ops.tabulated`), few are computed."""

    def both(x, g):
        x = x.clone().requires_grad_()
        y = function(x)
        return torch.stack([y.detach(), *torch.autograd.grad(y, x, g)])

    x, g = numbers(9000, seed=2) * 4, numbers(9000, seed=3)
    pieces = [on_machine(both, *p) for p in zip(x.split(3000), g.split(3000), strict=True)]
    same(on_machine(both, x, g), half(torch.cat(pieces, 1)))


def test_leaky_relu_rounds_where_it_multiplies():
    same(on_machine(lambda x: F.leaky_relu(x, 0.1), X), np.where(A > 0, A, A * H(0.1)))


def test_gated_units_are_rounded_once():
    x = numbers(4, 10)
    values, gate = half(x).astype(np.float64).reshape(4, 2, 5).swapaxes(0, 1)
    expected = values / (1 + np.exp(-gate))
    close = half(on_machine(F.glu, x)).astype(np.float64)
    assert np.abs(close - expected).max() <= 2.0**-11 * np.abs(expected).max() * 1.01

    def slopes():
        v = x.clone().requires_grad_()
        for dim in (1, 0):
            (F.glu(v, dim) * torch.arange(20.0).view_as(F.glu(v, dim))).sum().backward()
        return [v.grad]

    agree_on_machine(slopes, {"rtol": 1e-5, "atol": 1e-5})
