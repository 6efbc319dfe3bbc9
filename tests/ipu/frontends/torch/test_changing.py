"""Changes of a program from outside: against the same change written into it (differential)."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tests.ipu.frontends.torch.framework import machine, mlp, run, torch, train

from fpsim.torch import Changes  # isort: skip

updates = pytest.importorskip("ipu.frontends.torch.updates")
HALF = {"policy": "p=f16,c=f16"}
ADAMW = torch.optim.AdamW


def changed(changes, optimiser=ADAMW, steps=4, policy="p=f16,c=f16", **options):
    net = mlp()
    losses, session = run(
        train,
        net,
        (6,),
        steps,
        optimiser,
        **options,
        machine_options={"policy": policy, "changes": changes, "count": True},
    )
    return net, losses, session


def test_eps_is_the_same_as_in_the_program():
    inside = run(train, mlp(), (6,), 4, ADAMW, eps=1e-4, machine_options=HALF)[0]
    assert changed(Changes(eps=1e-4))[1] == inside


def test_eps_is_what_it_was_after_each_step():
    net = mlp()
    optimiser = ADAMW(net.parameters())
    with machine("f16", changes=Changes(eps=1e-4)):
        net(torch.randn(4, 6)).sum().backward()
        optimiser.step()
        assert optimiser.param_groups[0]["eps"] == 1e-8


@pytest.mark.parametrize("exponent", [0, 6])
def test_a_loss_scale_changes_no_bit_of_binary32(exponent):
    plain = run(train, mlp(), (6,), 4, torch.optim.SGD, machine_options={})[0]
    assert changed(Changes(2.0**exponent), torch.optim.SGD, policy="f32")[1] == plain


def test_a_loss_scale_saves_gradients_that_underflow():
    def gradient(changes):
        x = torch.full((4, 6), 1.0)
        layer = torch.nn.Linear(6, 2)
        with machine("p=f16,c=f16", changes=changes):
            (layer(x).sum() * 2.0**-13 * 2.0**-14).backward()
        return layer.weight.grad

    assert not gradient(Changes()).any()
    np.testing.assert_array_equal(gradient(Changes(2.0**12)).numpy(), np.full((2, 6), 2.0**-25))


@pytest.mark.parametrize("is_module", [True, False])
def test_a_loss_scale_holds_for_gradients_that_are_asked_for(is_module):
    """Of parameters, of other tensors, and of gradients that are differentiated again."""
    def asked(changes):
        layer, x = torch.nn.Linear(2, 1), torch.ones(1, 2, requires_grad=True)
        parameter = layer.weight if is_module else torch.ones(1, 2, requires_grad=True)
        torch.nn.init.ones_(layer.weight)
        told = []
        with machine("f32", changes=changes):
            optimiser = torch.optim.SGD([parameter], lr=0.25)
            for _ in range(3):
                y = layer(x).sum() if is_module else (parameter * x).sum()
                h = y * y
                slopes = torch.autograd.grad(h, [x, parameter], create_graph=True)
                penalty = slopes[0].sum() + slopes[1].sum()
                parameter.grad, of_y = torch.autograd.grad(h + penalty, [parameter, y])
                optimiser.step()
                told += [penalty.item(), of_y.item(), *parameter.grad.flatten().tolist(),
                         *parameter.flatten().tolist()]
        return told

    torch.manual_seed(0)
    plain = asked(Changes())
    torch.manual_seed(0)
    assert asked(Changes(64.0)) == plain


def test_a_loss_scale_saves_gradients_that_are_asked_for():
    def gradient(changes):
        x, layer = torch.full((4, 6), 1.0), torch.nn.Linear(6, 2)
        with machine("p=f16,c=f16", changes=changes):
            loss = layer(x).sum() * 2.0**-13 * 2.0**-14
            return torch.autograd.grad(loss, layer.weight)[0]

    assert not gradient(Changes()).any()
    np.testing.assert_array_equal(gradient(Changes(2.0**12)).numpy(), np.full((2, 6), 2.0**-25))


def test_a_loss_scale_holds_for_parameters_outside_of_modules():
    weight = torch.tensor([1.0], requires_grad=True)
    with machine("f32", changes=Changes(64.0)):
        optimiser = torch.optim.SGD([weight], lr=0.5)
        for _ in range(2):
            optimiser.zero_grad()
            (weight * 1.0).sum().backward()
            optimiser.step()
    assert weight.item() == 0.0


def test_wide_states_keep_parameters_in_their_format():
    net, _, session = changed(Changes(wide_states=True))
    for p in net.parameters():
        assert torch.equal(p, p.half().float())
    report = session.report()
    assert report["layers"]["optimizer"]["optimizer"]["DIVBYZERO"] == 0
    assert not [c for c in report["constants"] if c["value"] == 1e-8]
    assert sum(row["nonzero"] for row in report["swallowed"].values()) > 0


def test_the_first_wide_step_is_that_of_binary32_rounded_once():
    """From parameters that binary16 holds and gradients of one binary16 pass."""
    weights = []
    for policy, changes in (("p=f16,c=f16", Changes(wide_states=True)), ("p=f32,c=f16", Changes())):
        net = mlp()
        with torch.no_grad():
            for p in net.parameters():
                p.copy_(p.half().float())
        train_options = {"policy": policy, "changes": changes}
        run(train, net, (6,), 1, ADAMW, machine_options=train_options)
        weights.append([p.detach() for p in net.parameters()])
    for narrow, wide in zip(*weights, strict=True):
        assert torch.equal(narrow, wide.half().float())


def test_wide_states_need_float32_tensors():
    net = mlp().half()
    with machine("f16", changes=Changes(wide_states=True)):
        net(torch.ones(2, 6).half()).sum().backward()
        with pytest.raises(ValueError, match=r"needs float32 tensors, got .* torch.float16"):
            ADAMW(net.parameters()).step()


def test_halves_follow_the_policy():
    def halved(*_):
        net = mlp().half()
        optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
        torch.manual_seed(1)
        x, y = torch.randn(8, 6).half(), torch.randint(0, 3, (8,))
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimiser.step()
        return loss.item(), [p.detach().clone() for p in net.parameters()]

    (plain, _), _ = run(halved, machine_options={})
    (same, narrow), _ = run(halved, machine_options=HALF | {
        "changes": Changes(halves_by_policy=True)})
    (wide, parameters), _ = run(halved, machine_options={
        "changes": Changes(halves_by_policy=True)})
    # A loss in a float32 tensor is binary32, in a float16 one it is rounded.
    assert plain == float(torch.tensor(same).half()) != wide
    assert plain != same
    assert {p.dtype for p in parameters} == {torch.float32}
    assert all(torch.equal(p, p.half().float()) for p in narrow)
    assert not all(torch.equal(p, p.half().float()) for p in parameters)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_region_is_scaled_once(reentrant):
    gradients = []
    for changes in (Changes(), Changes(64.0)):
        layer = torch.nn.Linear(3, 1)
        torch.nn.init.ones_(layer.weight)
        x = torch.ones(2, 3, requires_grad=True)
        with machine("f32", changes=changes, count=True) as session:
            y = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=reentrant)
            y.sum().backward()
        gradients.append(layer.weight.grad)
        assert len(session.report()["losses"]) == 1
    assert torch.equal(*gradients)


def test_a_step_that_traps_leaves_eps_and_parameters_as_they_were():
    net = mlp()
    optimiser = ADAMW(net.parameters(), lr=0.01)
    changes = Changes(eps=1e-4, wide_states=True)
    with machine("p=f16,c=f16", traps=True, changes=changes) as session:
        net(torch.ones(2, 6)).square().mean().backward()
        optimiser.step()
        before = [p.detach().clone() for p in net.parameters()]
        net[-1].bias.grad.fill_(float("inf"))
        with pytest.raises(FloatingPointError, match="INVALID"):
            optimiser.step()
        assert optimiser.param_groups[0]["eps"] == 1e-8
        held = {session.memory.format_of(p).name for p in net.parameters()}
    assert held == {"binary16"}
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))


def test_models_one_after_the_other_are_unscaled_each():
    """Parameters of a model that is gone lend their identities to those of the next."""
    gradients, layers = set(), []
    with machine("f16", changes=Changes(loss_scale=1024.0)) as session:
        for i in range(20):
            torch.manual_seed(0)
            net = torch.nn.Sequential(*(torch.nn.Identity() for _ in range(i % 2)))
            net.append(torch.nn.Linear(3, 2))
            net(torch.ones(1, 3)).square().sum().backward()
            gradients.add(net[-1].weight.grad.abs().max().item())
            layers.append({session.layers.layer_of(p) for p in net.parameters()})
            del net
            gc.collect()
    assert len(gradients) == 1
    assert layers == [{str(i % 2)} for i in range(20)]


@pytest.mark.parametrize("policy", ["fp16", "bf16", "f32"])
@pytest.mark.parametrize("shape", [(3,), ()])
def test_counters_of_optimisers_go_on_beyond_the_format_of_the_policy(policy, shape):
    """2048 + 1 is 2048 in binary16, 256 + 1 is 256 in bfloat16."""
    parameter = torch.nn.Parameter(torch.ones(shape))
    optimiser = torch.optim.Adam([parameter], eps=1e-4)
    with machine(policy, target="hypothetical"):
        for _ in range(3):
            parameter.grad = torch.ones(shape)
            optimiser.step()
            if optimiser.state[parameter]["step"] == 1:
                optimiser.state[parameter]["step"].fill_(4096.0)
    assert optimiser.state[parameter]["step"] == 4098


@pytest.mark.parametrize("policy", ["f32", "fp16", "bf16"])
@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize("shape", [(3,), ()])
def test_the_product_of_momenta_is_torchs_in_binary32(policy, takes, shape, monkeypatch):
    """NAdam's, which is no moment of a parameter, in rows and in torch's operations."""

    def products():
        parameter = torch.nn.Parameter(torch.ones(shape))
        optimiser = torch.optim.NAdam([parameter], eps=1e-4)
        for _ in range(3):
            parameter.grad = torch.ones(shape)
            optimiser.step()
            yield optimiser.state[parameter]["mu_product"].item()

    expected = list(products())
    assert expected[0] == np.float32(0.9 * (1 - 0.5 * 0.96**0.004))
    if not takes:
        monkeypatch.setattr(updates.StepRows, "takes", lambda *arguments: False)
    with machine(policy, target="hypothetical"):
        assert list(products()) == expected
