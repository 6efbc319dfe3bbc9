"""Step functions: equal states, errors as sentences, the advice on AdamW's eps (golden, law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import machine, mlp, torch


def tried(session, step, seed):
    """The outcome of a step function in the session's own way."""
    return session.trial(session.way, seed, step)


def step(seed, steps=12):
    """A classification of 20 numbers by a small network in float16, as users write it."""
    torch.manual_seed(seed)
    target = torch.randn(20, 4)
    net = torch.nn.Sequential(
        torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
    ).half()
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for _ in range(steps):
        x = torch.randn(32, 20)
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x.half()), (x @ target).argmax(1))
        loss.backward()
        optimiser.step()


def test_advice_on_eps_removes_the_divisions_by_zero():
    with machine("f16", count=True) as session:
        step(0)
    report = session.report()
    assert report["first"][0]["flag"] == "DIVBYZERO"
    assert report["first"][0]["direction"] == "optimizer"
    advised = session.advise(step, trials=["fp16+eps=1e-4", "fp16+states=f32"], pairs=5)
    item = advised.items[0]
    assert "1e-08 is zero in binary16" in item.evidence
    assert [str(way) for way in item.ways] == ["fp16+eps=0.0001", "fp16+states=f32"]
    trials = {str(trial.way): trial for trial in advised.trials}
    assert trials["fp16"].counts["DIVBYZERO"] > 0
    assert trials["fp16"].judged.answer == "worse"
    for way in ("fp16+eps=0.0001", "fp16+states=f32"):
        assert trials[way].counts["DIVBYZERO"] == 0
        assert trials[way].counts["INVALID"] == 0
        assert trials[way].error == ""
    assert not trials["fp16+states=f32"].judged.diverged[0]


def test_a_trial_is_the_run_again():
    outcomes = [tried(machine("f16", sr=True, count=True), step, 3) for _ in range(2)]
    assert str(outcomes[0].losses) == str(outcomes[1].losses)
    assert len(outcomes[0].losses) == 12


def test_losses_that_a_step_returns_are_taken():
    assert tried(machine(), lambda seed: [seed, 2], 7).losses == [7.0, 2.0]


def test_torch_generator_is_as_it_was():
    before = torch.get_rng_state()
    tried(machine(), lambda seed: [float(torch.rand(()))], 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_error_of_a_trial_is_a_sentence():
    def fails(seed):
        raise ValueError("no such data\nat all")

    assert tried(machine(), fails, 0).error == "no such data"


def test_trials_need_a_closed_session():
    with machine() as session, pytest.raises(RuntimeError, match="leave this one first"):
        session.advise(step)


def test_a_way_costs_what_its_layers_cost():
    """Of 6 · 8 + 8 + 16 + 8 · 3 + 3 parameters the last layer has 27; tied ones count once."""

    def step(seed):
        net = mlp()
        net.tied = torch.nn.Linear(8, 3)
        net.tied.weight, net.tied.bias = net[3].weight, net[3].bias
        loose = torch.nn.Parameter(torch.zeros(1))
        optimiser = torch.optim.SGD([*net.parameters(), loose], lr=0.05)
        for _ in range(3):
            net[:3](torch.ones(2, 6))
            optimiser.zero_grad()
            net[:4](torch.ones(2, 6)).square().mean().backward()
            optimiser.step()

    with machine("fp16", count=True) as session:
        step(0)
    assert session.report()["parameters"] == {"0": 56, "2": 16, "3": 27, "optimizer": 1}
    advised = session.advise(step, ["fp16+*=f32", "fp16+3=f32", "mixed"], pairs=5)
    bits = {str(trial.way): trial.bits for trial in advised.trials}
    assert bits["fp16+*=f32"] == bits["mixed"] == 2
    assert bits["fp16+3=f32"] == 1.27
