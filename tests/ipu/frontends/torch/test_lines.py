"""Errors name the line of the user's program (golden)."""

from __future__ import annotations

import inspect
import os

import pytest

from tests.ipu.frontends.torch.framework import machine, mlp, torch

lines = pytest.importorskip("ipu.frontends.torch.lines")
checkpoint = torch.utils.checkpoint


def here(offset=0):
    """This file and the line of the caller."""
    return f"{__file__}:{inspect.currentframe().f_back.f_lineno + offset}"


def note(caught):
    return caught.value.__notes__[0]


def test_the_line_that_asks():
    assert lines.user_line() == here()


def test_a_line_below_torch_and_libraries():
    recorded = []

    class Layer(torch.nn.Module):
        def forward(self, x):
            recorded.append(lines.user_line())
            return x

    inner = here(-3)
    torch.nn.Sequential(Layer())(torch.ones(1))
    assert recorded == [inner]


def test_a_library_is_named_where_nothing_else_is():
    code = compile("def ask(f): return f()", os.__file__, "exec")
    names = {}
    exec(code, names)
    assert names["ask"](lines.user_line).startswith(__file__)


def test_a_trap_in_forward():
    with machine("f16", traps=True):
        x = torch.full((3,), 60000.0)
        with pytest.raises(FloatingPointError) as caught:
            torch.nn.functional.linear(x, torch.full((1, 3), 60000.0))
    assert note(caught).endswith(f", at {here(-1)}")


def test_a_trap_in_backward_names_the_call_of_backward():
    net = mlp()
    with machine("f16", traps=True):
        loss = net(torch.ones(2, 6)).sum()
        with pytest.raises(FloatingPointError) as caught:
            loss.backward(torch.tensor(60000.0))
    assert "(backward)" in note(caught)
    assert note(caught).endswith(f", at {here(-2)}")


def test_a_trap_in_an_update_names_the_call_of_step():
    net = mlp()
    optimiser = torch.optim.SGD(net.parameters(), lr=10.0)
    with machine("f16", traps=True):
        net(torch.ones(2, 6)).sum().backward()
        net[-1].bias.grad.fill_(60000.0)
        with pytest.raises(FloatingPointError) as caught:
            optimiser.step()
    assert "layer 'optimizer'" in note(caught)
    assert note(caught).endswith(f", at {here(-2)}")


def test_an_operation_without_a_rule():
    library = torch.library.Library("fpsim_lines", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    with machine(), pytest.raises(NotImplementedError) as caught:
        torch.ops.fpsim_lines.twice(torch.ones(3))
    assert f"at {here(-1)}, has no rule" in str(caught.value)


def test_a_format_that_the_target_lacks():
    with machine(), pytest.raises(ValueError, match="not in bfloat16") as caught:
        torch.ones(3).bfloat16() + 1
    assert note(caught).endswith(f", at {here(-1)}")


def test_a_gradient_scaler_that_waits_for_infinities():
    net = mlp()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    with machine("f16"):
        scaler.scale(net(torch.ones(2, 6)).sum()).backward()
        before = [p.detach().clone() for p in net.parameters()]
        with pytest.raises(RuntimeError, match=r"use machine\(nanoo=True\)") as caught:
            scaler.step(optimiser)
    assert note(caught).endswith(f", at {here(-1)}")
    for p, q in zip(net.parameters(), before, strict=True):
        assert torch.equal(p, q)


def test_an_update_that_is_refused_has_not_happened():
    class Odd(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad)
                group["params"][0].bfloat16().add_(1)

    net = mlp()
    optimiser = Odd(net.parameters(), {})
    with machine():
        net(torch.ones(2, 6)).sum().backward()
        before = [p.detach().clone() for p in net.parameters()]
        with pytest.raises(ValueError, match="not in bfloat16"):
            optimiser.step()
    for p, q in zip(net.parameters(), before, strict=True):
        assert torch.equal(p, q)


def test_a_recomputed_region_names_the_call_of_backward():
    def region(x):
        return (x * 300.0).square()

    x = torch.ones(3, requires_grad=True)
    with machine("f16", traps=True):
        y = checkpoint.checkpoint(region, x * 0.5, use_reentrant=False)
        with pytest.raises(FloatingPointError) as caught:
            y.backward(torch.full((3,), 60000.0))
    assert __file__ in note(caught)
