"""Pooling against torch (differential), and where gradients of equal maxima go (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.aten.bits import numbers
from tests.ipu.frontends.torch.framework import agree_on_machine, machine, torch

F = torch.nn.functional
X = numbers(2, 3, 7, 8)
CASES = {
    "max": lambda x: F.max_pool2d(x, 2),
    "max, overlapping": lambda x: F.max_pool2d(x, 3, stride=2, padding=1),
    "max, to the end": lambda x: F.max_pool2d(x, 3, stride=2, ceil_mode=True),
    "max of one image": lambda x: F.max_pool2d(x[0], 2),
    "average": lambda x: F.avg_pool2d(x, 2),
    "average with padding": lambda x: F.avg_pool2d(x, 3, stride=2, padding=1),
    "average without padding": lambda x: F.avg_pool2d(
        x, 3, stride=2, padding=1, count_include_pad=False
    ),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (7, 4)),
    "global": lambda x: F.adaptive_avg_pool2d(x, 1),
}


def results(function):
    x = X.clone().requires_grad_()
    y = function(x)
    slope = torch.linspace(-1, 1, y.numel()).reshape(y.shape)
    return y, torch.autograd.grad(y, x, slope)[0]


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients(name):
    agree_on_machine(lambda: results(CASES[name]), {"rtol": 1e-5, "atol": 1e-6})


@pytest.mark.parametrize(("ties", "expected"), [("first", [1.0, 0, 0, 0]), ("all", [1.0] * 4)])
def test_equal_maxima(ties, expected):
    x = torch.ones(1, 1, 2, 2, requires_grad=True)
    with machine(ties=ties):
        F.max_pool2d(x, 2).sum().backward()
    assert x.grad.flatten().tolist() == expected
