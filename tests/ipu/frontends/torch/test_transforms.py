"""Shapes without numbers, lazy modules, torch.func, traces, exports (differential, law)."""

from __future__ import annotations

import copy
import warnings

import pytest

from fpsim import BINARY16, BINARY32
from tests.ipu.frontends.torch.framework import machine, mlp, torch, train

values = pytest.importorskip("ipu.frontends.torch.values")
FakeTensorMode = pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode
POLICIES = ["f32", "f16", "p=f32,c=f16"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_a_training_of_shapes_alone_computes_nothing(policy, kind):
    with machine(policy, count=True) as session:
        if kind == "meta":
            net = mlp().to("meta")
            loss = net(torch.ones(2, 6, device="meta")).square().sum()
        else:
            with FakeTensorMode():
                net = mlp()
                loss = net(torch.ones(2, 6)).square().sum()
        loss.backward()
        assert {p.grad.shape for p in net.parameters()} == {p.shape for p in net.parameters()}
        assert all(values.is_abstract(p.grad) for p in net.parameters())
    report = session.report()
    assert report["native"] == report["operations"]["machine"] == report["losses"].count(0) == 0


def test_what_has_been_a_shape_is_trained_like_any_other():
    """As from_pretrained does: made on the meta device, then filled from a checkpoint."""
    trained = []
    for is_meta in (False, True):
        net = mlp()
        state = net.state_dict()
        with machine("f16", sr=True) as session:
            if is_meta:
                net.to("meta")(torch.ones(2, 6, device="meta"))
                net.to_empty(device="cpu").load_state_dict(state)
            trained.append(train(net, (6,), 2))
            assert {session.memory.format_of(p) for p in net.parameters()} == {BINARY16}
    assert trained[0] == trained[1]


def test_numbers_do_not_come_from_a_shape():
    with machine(), pytest.raises(NotImplementedError, match="meta tensor; no data"):
        torch.ones(2).copy_(torch.ones(2, device="meta"))


@pytest.mark.parametrize("policy", [*POLICIES, {"*": "f16", "1": "f32"}], ids=str)
def test_a_lazy_module_has_the_bits_of_one_that_is_not(policy):
    trained = []
    for is_lazy in (True, False):
        torch.manual_seed(5)
        with machine(policy, sr=True, count=True) as session:
            layer = torch.nn.LazyLinear(3) if is_lazy else torch.nn.Linear(6, 3)
            net = torch.nn.Sequential(torch.nn.Identity(), layer)
            if is_lazy:
                optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
            losses = []
            for i in range(3):
                loss = net(torch.full((2, 6), 0.3 + i)).square().mean()
                if not is_lazy and i == 0:
                    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append(loss.item())
            param = BINARY16 if policy == "f16" else BINARY32
            assert session.memory.format_of(layer.weight) == param
        assert {row["layer"] for row in session.report()["exponents"]["weights"]} == {"1"}
        trained.append(losses)
    assert trained[0] == trained[1]


@pytest.mark.parametrize("policy", POLICIES)
def test_gradients_by_sample(policy):
    """vmap(grad(functional_call)) gives what one sample after the other gives."""
    net, x = mlp(), torch.randn(4, 6)
    functional_call, grad, vmap = (
        torch.func.functional_call,
        torch.func.grad,
        torch.func.vmap,
    )

    def loss(parameters, row):
        return functional_call(net, parameters, (row[None],)).square().sum()

    with machine(policy) as session:
        by_sample = vmap(grad(loss), in_dims=(None, 0))(dict(net.named_parameters()), x)
        for i, row in enumerate(x):
            net.zero_grad()
            loss(dict(net.named_parameters()), row).backward()
            for name, p in net.named_parameters():
                torch.testing.assert_close(by_sample[name][i], p.grad, rtol=2e-2, atol=2e-3)
        assert session.memory.format_of(net[0].weight) == (
            BINARY16 if policy == "f16" else BINARY32
        )
    assert session.report()["native"] == 0


@pytest.mark.parametrize("policy", ["f32", "f16"])
@pytest.mark.parametrize("kind", ["trace", "export"])
def test_a_program_of_a_model_runs_on_the_machine(policy, kind):
    net, x = mlp(), torch.randn(2, 6)
    with machine(policy) as session, torch.no_grad(), warnings.catch_warnings():
        # torch.jit.trace is deprecated; a tracer's own warnings are errors.
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = net(x)
        if kind == "trace":
            program = torch.jit.trace(net, x)
        else:
            program = torch.export.export(net, (x,)).module()
        before = session.report()["operations"]["machine"]
        assert torch.equal(program(x), expected)
        assert session.report()["operations"]["machine"] > before
    assert session.report()["native"] == 0


def test_a_deep_copy_keeps_the_format():
    """Of one element too; a cast of the machine follows, not data from outside."""
    with machine("p=f32,c=f16") as session:
        wide = torch.nn.Parameter(torch.tensor([1e6, 1.0]))
        torch.optim.SGD([wide], lr=1.0).step()
        one = torch.tensor(0.1) * 1
        assert session.memory.format_of(copy.deepcopy(wide)) == BINARY32
        assert session.memory.format_of(copy.deepcopy(one)) == BINARY16
        assert torch.equal(copy.deepcopy(one), one)
        assert (copy.deepcopy(wide.detach()) * 1)[0] == 65504  # saturates: it is no infinity


def test_random_numbers_in_a_tensor_of_no_dimensions():
    with machine("f16"):
        x = torch.tensor(1.0) * 1
        x.normal_()
        assert x == x.half().float()


def test_an_optimiser_of_shapes_alone_steps():
    parameter = torch.nn.Parameter(torch.zeros(3, device="meta"))
    parameter.grad = torch.zeros_like(parameter)
    optimiser = torch.optim.Adam([parameter])
    with machine("f16") as session:
        optimiser.step()
    # The counter of steps is a number.
    assert session.report()["operations"]["computed_elements"] == 1
