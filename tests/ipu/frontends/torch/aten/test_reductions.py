"""Reductions (differential): numpy's binary32 sums by parts, rounded once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.torch.aten.bits import half, numbers, on_machine, same
from tests.ipu.frontends.torch.framework import agree_on_machine, machine, torch

X = numbers(6, 50)
W = X.numpy()
F = np.float32


def ordered(x, axis=-1):
    """Sums of at most 64 parts of at most 64 numbers, as docs/semantics.md §6 spreads them."""
    x = np.moveaxis(x, axis, -1)
    length = -(-x.shape[-1] // -(-x.shape[-1] // 64))
    parts = [x[..., i : i + length] for i in range(0, x.shape[-1], length)]
    sums = np.stack([np.add.accumulate(p, axis=-1, dtype=F)[..., -1] for p in parts], axis=-1)
    return np.add.accumulate(sums, axis=-1, dtype=F)[..., -1]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x.sum(), ordered(W.reshape(-1))),
        (lambda x: x.sum(1), ordered(W)),
        (lambda x: x.sum((0,), keepdim=True), ordered(W, 0)[None]),
        (lambda x: x.mean(-1), ordered(W) * F(1 / 50)),
        (lambda x: torch.linalg.vector_norm(x, dim=1), np.sqrt(ordered(W * W))),
        (lambda x: torch.linalg.vector_norm(x), np.sqrt(ordered((W * W).reshape(-1)))),
    ],
)
def test_sums_run_in_binary32_in_order(function, expected):
    """A sum to one number may be a loss: it stays binary32."""
    result = on_machine(function, X)
    if result.ndim:
        same(result, expected)
    else:
        assert result.item() == float(expected) != float(expected.astype(np.float16))
    half = on_machine(function, X.half())
    np.testing.assert_array_equal(half.numpy(), expected.astype(np.float16))


def test_a_sum_of_a_backward_pass_is_rounded():
    def work():
        v = torch.ones((), requires_grad=True)
        ((v * X).square() * 0.1).sum().backward()
        return v.grad

    result = on_machine(work)
    assert torch.equal(result, result.half().float())


@pytest.mark.parametrize("correction", [0, 1])
def test_variances_are_of_centred_values(correction):
    mean = (ordered(W) * F(1 / 50))[:, None]
    gaps = W - mean
    variance = ordered(gaps * gaps) * F(1 / (50 - correction))
    got = on_machine(lambda x: torch.var_mean(x, 1, correction=correction), X)
    same(got[0], variance)
    same(got[1], mean[:, 0])
    same(on_machine(lambda x: torch.std(x, 1, correction=correction), X), np.sqrt(variance))


def test_axes_from_arguments():
    from fpsim import BINARY32
    from ipu.frontends.torch.aten.reductions import axes_of
    from ipu.machine import Device

    x = Device().zeros((2, 3, 4), BINARY32)
    assert [axes_of(x, d) for d in (None, [], -1, [2, 0])] == [(0, 1, 2), (0, 1, 2), (2,), (0, 2)]


def test_running_sums_are_in_binary32_each_rounded_once():
    x = numbers(3, 50)
    wide = np.cumsum(x.numpy(), axis=1, dtype=np.float32)
    same(on_machine(lambda: torch.cumsum(x, 1)), wide.astype(np.float16))
    products = np.cumprod(x.numpy(), axis=0, dtype=np.float32)
    same(on_machine(lambda: torch.cumprod(x, 0)), products.astype(np.float16))


def test_one_number_is_its_own_sum_and_mean():
    x = torch.tensor(0.5)
    same(on_machine(lambda: torch.sum(x)), 0.5)
    same(on_machine(lambda: torch.mean(x)), 0.5)


def test_norms_of_other_orders():
    x = numbers(6, 5)
    a = half(x).astype(np.float64)
    same(on_machine(lambda v: torch.linalg.vector_norm(v, float("inf"), dim=1), x), abs(a).max(1))
    same(on_machine(lambda v: torch.linalg.vector_norm(v, 1, dim=0), x), abs(a).sum(0))
    distance = torch.nn.functional.pairwise_distance
    agree_on_machine(lambda: [distance(x, x.flip(0))], {"rtol": 1e-5, "atol": 1e-6})


def test_a_product_rounds_each_step_on_the_machine():
    x = numbers(5, 7).half()
    with machine("f16") as session:
        along, whole = x.prod(1), x.prod()
    expected = np.multiply.accumulate(x.numpy(), axis=1, dtype=np.float16)[:, -1]
    assert along.numpy().tolist() == expected.tolist()
    assert whole == np.multiply.accumulate(x.numpy().reshape(-1), dtype=np.float16)[-1]
    assert session.report()["host"]["elements"] == 0
