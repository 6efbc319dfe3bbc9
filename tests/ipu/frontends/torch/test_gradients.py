"""Updates that a program writes itself: their direction, and where a step ends (law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import machine, mlp, torch

gradients = pytest.importorskip("ipu.frontends.torch.gradients")
F = torch.nn.functional


def in_place(parameters):
    with torch.no_grad():
        for p in parameters:
            p -= 0.1 * p.grad
            p.grad = None


def by_data(parameters):
    for p in parameters:
        p.data.sub_(p.grad.data * 0.1)
        p.grad.zero_()


def new_memory(parameters):
    for p in parameters:
        p.data = p.data - 0.1 * p.grad
        p.grad = None


def copied(parameters):
    with torch.no_grad():
        for p in parameters:
            p.copy_(p - 0.1 * p.grad)
            p.grad = None


def by_lists(parameters):
    with torch.no_grad():
        torch._foreach_add_(parameters, [p.grad for p in parameters], alpha=-0.1)
    for p in parameters:
        p.grad = None


def with_momentum(parameters):
    with torch.no_grad():
        for p in parameters:
            v = p.__dict__.setdefault("speed", torch.zeros_like(p))
            v.mul_(0.9).add_(p.grad)
            p.add_(v, alpha=-0.1)
            p.grad = None


UPDATES = {f.__name__: f for f in (in_place, by_data, new_memory, copied, by_lists, with_momentum)}


def trained(update, *, validate=False, steps=4, passes=1, **options):
    net = mlp()
    parameters = list(net.parameters())
    torch.manual_seed(1)
    x, y = torch.randn(steps, 5, 6), torch.randint(0, 3, (steps, 5))
    losses = []
    with machine("f16", **options) as session:
        for i in range(steps):
            for _ in range(passes):
                loss = F.cross_entropy(net(x[i]), y[i])
                loss.backward()
                losses.append(loss.item())
            if validate:
                with torch.no_grad():
                    net(x[i])
            update(parameters)
    return [p.detach() for p in parameters], session, losses


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_a_step_ends_where_parameters_change(update):
    _, session, losses = trained(update, sr=True, count=True)
    report = session.report()
    assert report["steps"] == 4
    assert report["losses"] == losses
    assert "optimizer" in report["layers"]["optimizer"]
    assert not {d for row in report["layers"].values() for d in row} & {"evaluation", "other"}
    assert len(session._calls) < 20
    assert len(session.clock._counts) < 20


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_a_validation_moves_no_bits_of_an_update(update):
    expected, _, _ = trained(update, sr=True)
    parameters, _, _ = trained(update, sr=True, validate=True)
    for p, q in zip(parameters, expected, strict=True):
        assert torch.equal(p, q)


def test_an_update_without_an_optimiser_has_the_bits_of_one():
    def optimiser(parameters):
        torch.optim.SGD(parameters, lr=0.1).step()
        for p in parameters:
            p.grad = None

    expected, _, _ = trained(optimiser, sr=True)
    parameters, session, _ = trained(by_lists, sr=True)
    for p, q in zip(parameters, expected, strict=True):
        assert torch.equal(p, q)
    assert session.step == 4


def test_passes_before_an_update_are_one_step():
    _, session, losses = trained(in_place, passes=3, count=True)
    assert session.step == 4
    expected = [sum(losses[i : i + 3]) / 3 for i in range(0, 12, 3)]
    assert session.report()["losses"] == pytest.approx(expected)


def test_updates_of_gradients_by_autograd_grad():
    w = torch.randn(6, 3, requires_grad=True)
    with machine("f16", count=True) as session:
        for _ in range(3):
            loss = (torch.ones(4, 6) @ w).square().mean()
            (g,) = torch.autograd.grad(loss, [w])
            with torch.no_grad():
                w -= 0.1 * g
    assert session.step == 3
    assert set(session.report()["layers"]["optimizer"]) == {"optimizer"}


def test_changes_beside_an_optimiser_of_torch_end_no_step():
    net = mlp()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    with machine("f16") as session:
        for _ in range(3):
            net(torch.ones(4, 6)).square().mean().backward()
            optimiser.step()
            with torch.no_grad():
                for p in net.parameters():
                    p.clamp_(-0.5, 0.5)
    assert session.step == 3


def test_attacks_before_the_first_step_of_an_optimiser_end_no_step():
    net, x = mlp(), torch.ones(4, 6)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    with machine("f16") as session:
        delta = torch.zeros(4, 6, requires_grad=True)
        for _ in range(3):
            net(x + delta).square().mean().backward()
            with torch.no_grad():
                delta += 0.1 * delta.grad.sign()
        assert session.step == 0
        optimiser.step()
    assert session.step == 1


def test_swallowed_updates_are_counted():
    _, session, _ = trained(by_lists, count=True)
    swallowed = session.report()["swallowed"]
    assert set(swallowed) == {"0", "2", "3"}


def test_leaves_below_share_a_graph():
    w, v = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    y = w * v
    assert {id(x) for x in gradients.leaves_below([y.sum(), (y * y).sum(), w])} == {id(w), id(v)}
    assert gradients.leaves_below([torch.ones(2)]) == []


def test_passes_of_a_step_without_modules_are_micro_batches_from_0():
    w = torch.ones(3, 3, requires_grad=True)
    places = []
    with machine("f16", sr=True) as session:
        for _ in range(2):
            for _ in range(2):
                torch.tanh(torch.ones(2, 3) @ w).sum().backward()
                places.append(session.clock.place)
            with torch.no_grad():
                w.sub_(w.grad, alpha=0.1)
                w.grad = None
    assert [(p.step, p.micro_batch) for p in places] == [(0, 0), (0, 1), (1, 0), (1, 1)]
