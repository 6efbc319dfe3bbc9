"""Operations on the host: binary64, rounded once (differential, golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import machine, torch

host = pytest.importorskip("ipu.frontends.torch.host")

X = torch.linspace(-2.0, 2.0, 40)


@pytest.mark.parametrize("name", ["cos", "sinh", "log1p", "expm1", "atan"])
def test_results_are_rounded_once_from_binary64(name):
    function = getattr(torch, name)
    x = X.abs().half().float()
    expected = function(x.double())
    for policy, rounded in (("f32", expected.float()), ("f16", expected.half().float())):
        with machine(policy, f32_denormals="ieee") as session:
            result = function(x)
        assert torch.equal(result, rounded)
        report = session.report()["host"]
        assert report["elements"] == 40
        assert report["share"] == 1


def test_stochastic_rounding_rounds_host_results_too():
    with machine("f16", sr=True):
        results = {tuple(torch.cos(X).tolist()) for _ in range(3)}
    assert len(results) == 3


def test_float64_and_complex_numbers_stay_with_the_host():
    with machine("f16") as session:
        tripled = X.double() * 3
        spectrum = torch.fft.rfft(X)
    assert torch.equal(tripled, X.double() * 3)
    assert spectrum.dtype == torch.complex64
    parts = torch.view_as_real(spectrum)
    assert torch.equal(parts, parts.half().float())
    assert set(session.report()["host"]["operations"]) == {
        "aten.mul.Tensor", "aten._fft_r2c.default"
    }


def test_gradients_of_host_operations_are_right():
    x = torch.linspace(0.1, 1.0, 5, requires_grad=True)
    with machine():
        torch.cos(x).sum().backward()
    torch.testing.assert_close(x.grad, -torch.sin(x.detach()))


def test_the_gradient_of_a_largest_difference_goes_to_that_difference():
    x, y = (torch.randn(4, 3, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    leaves = [t.clone().requires_grad_() for t in (x, y)]
    torch.cdist(*leaves, p=float("inf")).sum().backward()
    ours = [t.clone().requires_grad_() for t in (x, y)]
    with machine():
        (
            torch.cdist(*ours, p=float("inf")).sum() + torch.pdist(ours[0], float("inf")).sum()
        ).backward()
    torch.pdist(leaves[0], float("inf")).sum().backward()
    for a, b in zip(ours, leaves, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_complex_results_of_any_shape():
    for n in (0, 1, 3):
        with machine() as run:
            values = torch.linalg.eigvals(torch.eye(n))
        assert torch.equal(values, torch.ones(n, dtype=torch.complex64))
    assert run.report()["native"] == 0
