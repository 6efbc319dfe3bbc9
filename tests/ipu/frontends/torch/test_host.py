"""Operations on the host: binary64, rounded once (differential, golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import machine, torch

host = pytest.importorskip("ipu.frontends.torch.host")

X = torch.linspace(-2.0, 2.0, 40)


@pytest.mark.parametrize("name", ["cos", "sinh", "log1p", "cumsum", "softplus"])
def test_results_are_rounded_once_from_binary64(name):
    function = getattr(torch.nn.functional, name, None) or getattr(torch, name)
    arguments = (0,) if name == "cumsum" else ()
    x = X.abs().half().float()
    expected = function(x.double(), *arguments)
    for policy, rounded in (("f32", expected.float()), ("f16", expected.half().float())):
        with machine(policy, f32_denormals="ieee") as session:
            result = function(x, *arguments)
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
    }  # fmt: skip


def test_gradients_of_host_operations_are_right():
    x = torch.linspace(0.1, 1.0, 5, requires_grad=True)
    with machine():
        torch.cos(x).sum().backward()
    torch.testing.assert_close(x.grad, -torch.sin(x.detach()))
