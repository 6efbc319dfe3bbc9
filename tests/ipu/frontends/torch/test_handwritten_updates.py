"""Updates that a program writes itself (differential: against torch's own numbers; golden)."""

from __future__ import annotations

from copy import deepcopy

import pytest

from ipu.run.births.kinds import ABSORBED
from ipu.run.causes.finding import find_causes
from ipu.run.ways import Way
from tests.ipu.frontends.torch.framework import machine, mlp, torch

RATE, EPS = 0.01, 1e-8


class Adam(torch.optim.Optimizer):
    """An optimiser of the user's, without correction of its averages."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
            state["m"].mul_(0.9).add_(0.1 * p.grad)
            state["v"].mul_(0.99).add_(0.01 * p.grad * p.grad)
            p.sub_(RATE * state["m"] / (state["v"].sqrt() + EPS))


def in_an_optimiser(net):
    """A step, and the parameters' states."""
    optimiser = Adam(net.parameters())
    return optimiser.step, lambda: [optimiser.state[p]["v"] for p in net.parameters()]


def in_place(net):
    averages = [(torch.zeros_like(p), torch.zeros_like(p)) for p in net.parameters()]

    def step():
        with torch.no_grad():
            for p, (m, v) in zip(net.parameters(), averages, strict=True):
                m.mul_(0.9).add_(0.1 * p.grad)
                v.mul_(0.99).add_(0.01 * p.grad * p.grad)
                p.sub_(RATE * (m / 1) / ((v / 1).sqrt() + EPS))

    return step, lambda: [v for _, v in averages]


def out_of_place(net):
    averages = [[torch.zeros_like(p), torch.zeros_like(p)] for p in net.parameters()]

    def step():
        for p, of_p in zip(net.parameters(), averages, strict=True):
            of_p[0] = 0.9 * of_p[0] + 0.1 * p.grad
            of_p[1] = 0.99 * of_p[1] + 0.01 * p.grad * p.grad
            p.data.sub_(RATE * of_p[0] / (of_p[1].sqrt() + EPS))

    return step, lambda: [v for _, v in averages]


@pytest.mark.parametrize("addition", ["states=f32", "aten.*=f32"])
@pytest.mark.parametrize("update", [in_an_optimiser, in_place, out_of_place])
def test_an_update_of_the_program_is_that_of_binary32_rounded_once(update, addition):
    net, way = mlp(), Way.parse(f"fp16+{addition}")
    x = torch.randn(8, 6)
    step, states = update(net)
    with machine(way.policy, changes=way.changes, count=True) as session:
        for _ in range(2):  # in the second one averages of the first are read
            before = [p.detach().clone() for p in net.parameters()]
            held = [v.clone() for v in states()] if update is not in_an_optimiser else None
            net.zero_grad()
            (net(x).square().mean() * 2.0**-4).backward()
            step()
    assert session.report()["layers"]["optimizer"]["optimizer"].get("DIVBYZERO", 0) == 0
    for p, v in zip(net.parameters(), states(), strict=True):
        assert not torch.equal(v, v.half().float())  # they are held in binary32
        assert torch.equal(p, p.half().float())  # and parameters in their format
    if held is not None:
        for p, old, v, after in zip(net.parameters(), held, before, states(), strict=True):
            assert torch.equal(after, 0.99 * old + 0.01 * p.grad * p.grad)
            assert v.shape == p.shape


def test_a_pattern_of_operations_leaves_optimisers_of_torch_as_they_are():
    weights = []
    for text in ("fp16", "fp16+aten.div=f32"):
        way, net = Way.parse(text), mlp()
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        with machine(way.policy, changes=way.changes):
            for _ in range(3):
                optimiser.zero_grad()
                (net(torch.ones(4, 6)) / 3).sum().backward()
                optimiser.step()
        weights.append([p.detach() for p in net.parameters()])
    for narrow, named in zip(*weights, strict=True):
        assert torch.equal(narrow, named)


def through_data(p, rate):
    p.data -= rate * p.grad


def through_data_with_alpha(p, rate):
    p.data.add_(p.grad, alpha=-rate)


def without_gradients(p, rate):
    with torch.no_grad():
        p -= rate * p.grad


class Plain(torch.optim.Optimizer):
    """An optimiser of the user's, as of torch before no_grad."""

    def __init__(self, parameters, rate):
        super().__init__(parameters, {"lr": rate})

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.data.add_(p.grad.data, alpha=-self.param_groups[0]["lr"])


@pytest.mark.parametrize("update", [
    through_data, through_data_with_alpha, without_gradients, Plain])
def test_lost_updates_that_a_program_writes_are_told_as_those_of_an_optimiser(update):
    """Not as terms that a sum absorbs, nor as a tensor that stands still."""
    net, rate = mlp(), 1e-5
    step = Plain(net.parameters(), rate).step if update is Plain else None
    session = machine("fp16", count=True)
    session.shadow(4)
    with session:
        for _ in range(4):
            net.zero_grad()
            net(torch.ones(8, 6)).square().mean().backward()
            for p in () if step else net.parameters():
                update(p, rate)
            if step:
                step()
    report = session.report()
    lost = report["swallowed"]
    assert sum(row["swallowed"] for row in lost.values()) > 0
    assert "optimizer" not in lost  # but the layers
    assert not [row for row in report["births"] if row["kind"] == ABSORBED]
    motions = report["shadow"]["motions"]
    assert len(motions) == len(list(net.parameters()))
    assert all(row["is_parameter"] for row in motions)
    assert [cause.kind for cause in find_causes(report)] == ["updates"]


def test_an_average_in_a_copy_of_the_model_is_no_update():
    """Its parameters have no gradients: what it absorbs are terms of a sum."""
    net = mlp()
    copy = deepcopy(net)
    with machine("fp16", count=True) as session:
        for _ in range(3):
            net(torch.ones(8, 6)).square().mean().backward()
            with torch.no_grad():
                for average, p in zip(copy.parameters(), net.parameters(), strict=True):
                    average.mul_(0.999).add_(1e-5 * p)
    rows = [row for row in session.report()["births"] if row["kind"] == ABSORBED]
    assert {row["direction"] for row in rows} == {"optimizer"}
