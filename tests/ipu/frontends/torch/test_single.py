"""Optimisers with foreach and fused have the bits of one tensor after the other (law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import machine, mlp, torch, train

single = pytest.importorskip("ipu.frontends.torch.single")
OPTIMISERS = {
    "AdamW": (torch.optim.AdamW, {"eps": 1e-4, "weight_decay": 0.1}),
    "Adam": (torch.optim.Adam, {"eps": 1e-4, "amsgrad": True, "weight_decay": 0.1}),
    "SGD": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "Adagrad": (torch.optim.Adagrad, {"eps": 1e-4, "lr_decay": 0.1}),
}
FORMS = ({"foreach": False}, {"foreach": True}, {"fused": True})


def bits(net):
    return [p.detach().numpy().tobytes() for p in net.parameters()]


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("options", [{"sr": True, "policy": "f16"}, {"policy": "f32"}], ids=str)
def test_all_forms_have_equal_bits(name, options):
    optimiser, arguments = OPTIMISERS[name]
    trained = []
    for form in FORMS:
        net = mlp()
        with machine(**options) as session:
            losses = train(net, (6,), 3, optimiser, **arguments, **form)
        assert session.report()["native"] == session.report()["host"]["elements"] == 0
        assert session.step == 3
        trained.append((losses, bits(net)))
    assert trained[0] == trained[1] == trained[2]


@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_a_gradient_scaler_skips_and_unscales_alike(name):
    """Of four steps the second has an infinite gradient."""
    optimiser, arguments = OPTIMISERS[name]
    trained = []
    for form in ({"fused": False}, {"fused": True}):
        net = mlp()
        step = optimiser(net.parameters(), lr=0.05, **arguments, **form)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        with machine("p=f32,c=f16", sr=True, nanoo=True) as session:
            for i in range(4):
                step.zero_grad()
                loss = net(torch.full((2, 6), i + 1.0)).square().mean()
                scaler.scale(loss * (float("inf") if i == 1 else 1)).backward()
                scaler.step(step)
                scaler.update()
        assert step.param_groups[0]["fused"] is form["fused"]
        assert getattr(step, "_step_supports_amp_scaling", False) is form["fused"]
        assert (session.step, scaler.get_scale()) == (4, 128.0)
        trained.append(bits(net))
    assert trained[0] == trained[1]


@pytest.mark.parametrize("error", ["operation", "closure"])
def test_a_step_that_stops_leaves_the_optimiser_as_it_was(error):
    net = mlp()
    step = torch.optim.SGD(net.parameters(), lr=1e30, fused=True)

    def closure():
        if error == "closure":
            raise KeyError("closure")
        loss = net(torch.ones(2, 6)).square().sum()
        loss.backward()
        net[0].weight.grad.fill_(1e30)
        return loss

    with machine(traps=True), pytest.raises((FloatingPointError, KeyError)):
        step.step(closure)
    assert step.param_groups[0]["fused"] is True


KERNELS = {
    "adamw": (3, {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-4,
                  "amsgrad": False, "maximize": False}),
    "adam": (3, {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-4,
                 "amsgrad": True, "maximize": True}),
    "sgd": (1, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "dampening": 0.0,
                "nesterov": False, "maximize": False}),
    "adagrad": (1, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "eps": 1e-4,
                    "maximize": False}),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("scale", [None, 4.0])
def test_a_kernel_called_as_it_is_follows_torch(name, is_first, scale):
    slots, options = KERNELS[name]
    if name == "sgd":
        options = options | {"is_first_step": is_first}

    def stepped(found_inf=0.0):
        torch.manual_seed(3)
        lists = [[torch.randn(3), torch.randn(2, 2)] for _ in range(2)]
        lists += [[x.square() + 1 for x in lists[0]] for _ in range(slots)]
        if name in ("adam", "adamw") and not options["amsgrad"]:
            lists[-1] = []
        if name != "sgd":
            lists.append([torch.tensor(1.0 if is_first else 5.0) for _ in range(2)])
        scaler = {} if scale is None else {"grad_scale": torch.tensor(scale)}
        if found_inf:
            scaler["found_inf"] = torch.tensor(found_inf)
        getattr(torch, f"_fused_{name}_")(*lists, **options, **scaler)
        return [x for row in lists for x in row]

    with machine() as session:
        got, skipped = stepped(), stepped(1.0)
    for a, b in zip(got, stepped(), strict=True):
        torch.testing.assert_close(a, b)
    assert session.report()["native"] == session.report()["host"]["elements"] == 0
    for a, b in zip(skipped[:2], stepped(1.0)[:2], strict=True):
        assert torch.equal(a, b)


def test_names():
    assert single.is_fused("_fused_adamw_")
    assert not single.is_fused("_fused_rms_norm")
