"""Pointwise operations bit for bit in binary16 (differential): numpy, one rounding at a time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.torch.aten.bits import half, numbers, on_machine, same
from tests.ipu.frontends.torch.framework import agree_on_machine, torch

X, Y = numbers(40), numbers(40, seed=1)
A, B = half(X), half(Y)
H = np.float16


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, y: x + y, A + B),
        (lambda x, y: x.sub(y, alpha=0.3), A - B * H(0.3)),
        (lambda x, y: x.add(y, alpha=3), A + B * H(3)),
        (lambda x, y: 1.1 - x, H(1.1) - A),
        (lambda x, y: x * 0.1, A * H(0.1)),
        (lambda x, y: x / y, A / B),
        (lambda x, y: x.reciprocal(), H(1) / A),
        (lambda x, y: x.square(), A * A),
        (lambda x, y: x**3, (np.float64(A) ** 3).astype(H)),
        (lambda x, y: x**1, A),
        (lambda x, y: x.abs() ** 0.5, np.sqrt(np.abs(A))),
        (lambda x, y: x.abs().sqrt(), np.sqrt(np.abs(A))),
        (lambda x, y: x.clamp(-0.1, 0.7), np.clip(A, H(-0.1), H(0.7))),
        (lambda x, y: x.clamp(min=0.1), np.maximum(A, H(0.1))),
        (lambda x, y: x.clamp_max(0.1), np.minimum(A, H(0.1))),
        (lambda x, y: x.clone().mul_(y), A * B),
        (lambda x, y: x[0] * y, A[0] * B),
    ],
)
def test_each_step_is_rounded_once(function, expected):
    same(on_machine(function, X, Y), expected)


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "erf"])
def test_functions_are_rounded_once(name):
    from scipy import special

    functions = {"exp": np.exp, "tanh": np.tanh, "sigmoid": special.expit, "erf": special.erf}
    wide = functions[name](A.astype(np.float64))
    same(on_machine(lambda x: getattr(x, name)(), X), wide.astype(H))


def test_out_arguments_take_the_result():
    import torch

    def into(x, y):
        result = torch.empty(0)
        torch.mul(x, y, out=result)
        return result

    same(on_machine(into, X, Y), A * B)


@pytest.mark.parametrize("exponent", [4, 1.5, -2, 0, 7])
def test_powers_are_rounded_once(exponent):
    x = on_machine(torch.abs, numbers(60))
    same(on_machine(lambda v: v**exponent, x), (np.float64(half(x)) ** exponent).astype(H))


def test_bounds_that_are_tensors():
    x, low = numbers(30), numbers(30, seed=1)
    high = low + 0.5
    expected = np.minimum(np.maximum(half(x), half(low)), half(high))
    same(on_machine(torch.clamp, x, low, high), expected)
    same(on_machine(lambda v, b: torch.clamp(v, min=b), x, low), np.maximum(half(x), half(low)))
    same(on_machine(lambda v, b: torch.clamp(v, max=b), x, low), np.minimum(half(x), half(low)))
    cosine = torch.nn.functional.cosine_similarity
    agree_on_machine(lambda: [cosine(x.view(3, 10), low.view(3, 10))], {"rtol": 1e-5, "atol": 1e-6})
