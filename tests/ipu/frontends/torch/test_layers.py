"""Layers, directions and micro-batches of operations (golden, law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import machine, mlp, torch

layers = pytest.importorskip("ipu.frontends.torch.layers")


class Net(torch.nn.Module):
    """Modules inside modules, and an operation of its own."""

    def __init__(self):
        super().__init__()
        self.block = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
        self.head = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.head(self.block(x) * 2.0)


def places(work):
    """What operations of the machine were where, as triples."""
    session = machine("f16")
    rows = []
    call = session.call

    def watched(operation):
        result = call(operation)
        rows.append((operation, *session.layers.where(operation)))
        return result

    session.call = watched
    with session:
        work()
    return rows


def test_forward_and_backward_of_a_layer_have_its_path():
    net = Net()
    rows = set(places(lambda: net(torch.ones(2, 3)).sum().backward()))
    assert ("aten.addmm", "block.0", "forward", 0) in rows
    assert ("aten.tanh", "block.1", "forward", 0) in rows
    assert ("aten.mul", "Net", "forward", 0) in rows
    assert ("aten.tanh_backward", "block.1", "backward", 0) in rows
    assert ("aten.mul", "Net", "backward", 0) in rows
    assert {s[1] for s in rows if s[0] == "aten.mm"} == {"block.0", "head"}
    assert ("aten.sum", "aten.sum", "forward", 0) in rows


def test_the_optimiser_is_a_layer():
    net = Net()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)

    def work():
        net(torch.ones(2, 3)).sum().backward()
        optimiser.step()

    rows = places(work)
    assert {s[1:] for s in rows if s[2] == "optimizer"} == {("optimizer", "optimizer", 0)}
    assert rows[-1][1] == "optimizer"


def test_a_closure_of_an_optimiser_runs_the_network():
    net = Net()
    optimiser = torch.optim.LBFGS(net.parameters(), max_iter=2)

    def closure():
        optimiser.zero_grad()
        loss = net(torch.ones(2, 3)).square().sum()
        loss.backward()
        return loss

    rows = places(lambda: optimiser.step(closure))
    assert {"forward", "backward"} == {s[2] for s in rows if s[1] == "block.0"}
    assert ("aten.dot", "optimizer", "optimizer", 0) in rows


def test_backward_passes_count_micro_batches_until_a_step():
    net = Net()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)

    def work():
        for _ in range(2):
            for _ in range(2):
                net(torch.ones(2, 3)).sum().backward()
            optimiser.step()

    tanhs = [s[3] for s in places(work) if "tanh" in s[0]]
    assert tanhs == [0, 0, 1, 1, 0, 0, 1, 1]


def test_a_backward_pass_has_the_micro_batch_of_its_forward():
    net = Net()

    def work():
        net(torch.ones(2, 3)).sum().backward()
        first, second = net(torch.ones(2, 3)).sum(), None
        second = net(torch.ones(2, 3)).sum()
        second.backward()
        first.backward()

    backward = [s[3] for s in places(work) if "tanh_backward" in s[0]]
    assert backward == [0, 1, 1]


def test_accumulated_gradients_belong_to_the_parameters_layer():
    net = Net()

    def work():
        for _ in range(2):
            net(torch.ones(2, 3)).sum().backward()

    added = {s[1] for s in places(work) if s[0].startswith("aten.add") and s[2] == "backward"}
    assert added == {"block.0", "head"}


def test_work_without_gradients_is_evaluation():
    def work():
        for _ in range(2):
            with torch.no_grad():
                torch.ones(2) * 2.0

    evaluated = ("aten.mul", "aten.mul", "evaluation")
    assert places(work) == [(*evaluated, 0), (*evaluated, 1)]


def test_functions_of_autograd_outside_of_modules_and_blocks_are_forward():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch.no_grad():
                return x * 2.0

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    rows = places(lambda: Doubled.apply(torch.ones(2, requires_grad=True)))
    assert rows == [("aten.mul", "aten.mul", "forward", 0)]


def test_modules_outside_of_the_outermost_one_have_names():
    loss, net = torch.nn.CrossEntropyLoss(), mlp()
    rows = places(lambda: loss(net(torch.ones(2, 6)), torch.tensor([0, 1])))
    assert ("aten._log_softmax", "CrossEntropyLoss", "forward", 0) in rows


def test_an_error_in_a_module_leaves_no_layer_behind():
    net = Net()
    with machine() as session:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            net(torch.ones(2, 7))
        assert session.layers.stack == []
