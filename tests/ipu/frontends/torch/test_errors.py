"""Errors: those of torch where torch refuses too, else a refusal with operation and line (law)."""

from __future__ import annotations

import inspect
import os

import pytest

from tests.ipu.frontends.torch.framework import machine, mlp, torch

errors = pytest.importorskip("ipu.frontends.torch.errors")
F, nn = torch.nn.functional, torch.nn
checkpoint = torch.utils.checkpoint
ones = torch.ones


def kernel(x, channels, size):
    return F.conv2d(x, ones(4, channels, size, size))


#: What users get wrong.
WRONG = {
    "shapes of a product": lambda: ones(2, 3) @ ones(2, 3),
    "three dimensions in mm": lambda: ones(1, 2, 3).mm(ones(3, 2)),
    "leading dimensions": lambda: torch.bmm(ones(2, 3, 4), ones(3, 4, 2)),
    "shapes of a sum": lambda: ones(2) + ones(3),
    "class": lambda: F.cross_entropy(ones(2, 3), torch.tensor([0, 5])),
    "channels": lambda: kernel(ones(1, 2, 5, 5), 3, 3),
    "large kernel": lambda: kernel(ones(1, 3, 5, 5), 3, 7),
    "large window": lambda: F.avg_pool2d(ones(1, 1, 2, 2), 3),
    "index": lambda: ones(2).index_add_(0, torch.tensor([3]), ones(1)),
    "dimension of softmax": lambda: F.softmax(ones(3), 3),
    "dimension of mean": lambda: ones(2).mean(4),
    "shape of a norm": lambda: F.layer_norm(ones(3), [4]),
    "classes that are no integers": lambda: F.nll_loss(ones(2, 3), ones(2)),
    "view": lambda: ones(3, 4).view(5),
    "half and float": lambda: nn.Linear(3, 2)(ones(1, 3).half()),
    "half and float, dot": lambda: ones(3).half() @ ones(3),
    "half bias": lambda: F.linear(ones(1, 3), ones(2, 3), ones(2).half()),
    "integers take floats": lambda: ones(2).int().add_(ones(2)),
    "integers as out": lambda: torch.add(ones(2), ones(2), out=ones(2).int()),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_those_of_torch(name):
    with pytest.raises((RuntimeError, IndexError)) as expected:
        WRONG[name]()
    with machine(), pytest.raises(type(expected.value)) as got:
        WRONG[name]()
    assert str(got.value) == str(expected.value)
    (note,) = got.value.__notes__
    assert "test_errors.py:" in note


def test_a_half_image_and_a_float_kernel_are_refused_as_in_torch():
    with machine(), pytest.raises(RuntimeError, match=r"Half but found Float|should be the same"):
        F.conv2d(ones(1, 3, 5, 5).half(), ones(4, 3, 3, 3))


def test_looking_for_the_error_of_torch_draws_no_random_numbers():
    x = ones(2).int()
    before = torch.get_rng_state()
    with machine(), pytest.raises(RuntimeError):
        x.add_(ones(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert x.tolist() == [1, 1]


FOREIGN = {
    "sparse product": lambda: torch.sparse.mm(torch.eye(3).to_sparse(), ones(3, 2)),
    "compressed rows": lambda: torch.eye(3).to_sparse_csr() @ ones(3, 2),
    "sparse gradient": lambda: nn.Embedding(5, 2, sparse=True)(torch.tensor([1])).sum().backward(),
    "quantised": lambda: torch.quantize_per_tensor(ones(4), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([ones(2), ones(3)]) * 2.5,
    "mkldnn": lambda: ones(3, 3).to_mkldnn() + 1,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FOREIGN)
def test_tensors_that_are_not_dense_are_refused_with_the_line(name):
    sentence = r"(?s)^aten\..* in layer .*, at .*test_errors.py:\d+, has no rule on the simulated"
    with machine(), pytest.raises(NotImplementedError, match=sentence):
        FOREIGN[name]()


# The line of the program -------------------------------------------------------------------------


def here(offset=0):
    """This file and the line of the caller."""
    return f"{__file__}:{inspect.currentframe().f_back.f_lineno + offset}"


def note(caught):
    return caught.value.__notes__[0]


def test_the_line_that_asks():
    assert errors.user_line() == here()


def test_a_line_below_torch_and_libraries():
    recorded = []

    class Layer(torch.nn.Module):
        def forward(self, x):
            recorded.append(errors.user_line())
            return x

    inner = here(-3)
    torch.nn.Sequential(Layer())(torch.ones(1))
    assert recorded == [inner]


def test_a_library_is_named_where_nothing_else_is():
    code = compile("def ask(f): return f()", os.__file__, "exec")
    names = {}
    exec(code, names)
    assert names["ask"](errors.user_line).startswith(__file__)


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


def test_a_line_of_a_relative_name_is_the_users(tmp_path, monkeypatch):
    """Code compiled under a relative name, wherever the program is now."""
    scope = {}
    exec(compile("def where():\n    return line()\n", "program.py", "exec"), scope)
    scope["line"] = errors.user_line
    assert scope["where"]() == "program.py:2"
    monkeypatch.chdir(tmp_path)
    assert scope["where"]() == "program.py:2"
