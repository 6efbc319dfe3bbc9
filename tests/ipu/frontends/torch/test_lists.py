"""Optimisers and clipping on lists of tensors: the bits of one tensor after the other (law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import mlp, run, torch, train

lists = pytest.importorskip("ipu.frontends.torch.lists")
OPTIMISERS = {
    "AdamW": (torch.optim.AdamW, {"eps": 1e-4}),
    "SGD": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 1e-3}),
    "Adagrad": (torch.optim.Adagrad, {}),
    "AdamW, AMSGrad": (torch.optim.AdamW, {"eps": 1e-4, "amsgrad": True}),
    "Adamax": (torch.optim.Adamax, {"eps": 1e-4}),
    "NAdam": (torch.optim.NAdam, {"eps": 1e-4}),
    "Rprop": (torch.optim.Rprop, {}),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_lists_follow_torch(name):
    optimiser, options = OPTIMISERS[name]
    expected = train(mlp(), (6,), 10, optimiser, foreach=True, **options)
    losses, session = run(train, mlp(), (6,), 10, optimiser, foreach=True, **options)
    assert max(abs(a - b) for a, b in zip(losses, expected, strict=True)) <= 2e-6
    assert session.report()["host"]["elements"] == 0


def test_lists_have_the_values_of_single_tensors():
    losses = [
        run(train, mlp(), (6,), 5, machine_options={"policy": "f16"}, foreach=f, momentum=0.9)[0]
        for f in (False, True)
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("foreach", [False, True])
def test_clipping_of_gradients(foreach):
    def clipped():
        net = mlp()
        net(torch.ones(2, 6)).square().sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1, foreach=foreach)
        return [norm, *(p.grad for p in net.parameters())]

    expected, (got, session) = clipped(), run(clipped)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)
    assert session.report()["host"]["elements"] == 0


@pytest.mark.parametrize(
    "operation",
    [lambda x: torch._foreach_maximum(x, 0.5), lambda x: torch._foreach_minimum(x, [0.1, 0.2]),
     lambda x: torch._foreach_maximum(x, [-t for t in x]),
     lambda x: torch._foreach_norm(x, 2, torch.float32), lambda x: torch._foreach_norm(x, 1),
     lambda x: torch._foreach_pow(x, 2), lambda x: torch._foreach_neg(x)],
)
def test_operations_on_lists_are_those_of_torch(operation):
    x = [torch.linspace(-1, 1, 5), torch.linspace(-2, 1, 4)]
    expected, (got, session) = operation(x), run(operation, x)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)
    assert session.report()["native"] == 0


def test_maxima_in_place():
    x = [torch.linspace(-1, 1, 5)]

    def work():
        target = [t.clone() for t in x]
        torch._foreach_maximum_(target, [-t for t in x])
        torch._foreach_minimum_(target, 0.7)
        return target

    assert torch.equal(run(work)[0][0], work()[0])


def test_names():
    assert lists.is_of_lists("_foreach_add_")
    assert not lists.is_of_lists("add_")
