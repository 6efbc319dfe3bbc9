"""Optimisers and clipping on lists of tensors: the bits of one tensor after the other (law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import machine, mlp, run, torch, train

lists = pytest.importorskip("ipu.frontends.torch.lists")
OPTIMISERS = {
    "AdamW": (torch.optim.AdamW, {"eps": 1e-4}),
    "SGD": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 1e-3}),
    "Adagrad": (torch.optim.Adagrad, {}),
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


def test_fused_optimisers_are_refused():
    net = mlp()
    optimiser = torch.optim.AdamW(net.parameters(), fused=True)
    with machine():
        net(torch.ones(2, 6)).sum().backward()
        with pytest.raises(NotImplementedError, match="use fused=False, whose operations run"):
            optimiser.step()


def test_names():
    assert lists.is_of_lists("_foreach_add_")
    assert not lists.is_of_lists("add_")
    assert lists.is_fused("_fused_adamw_")
