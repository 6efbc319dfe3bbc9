"""Updates: all parameters or none; states by torch's names (law)."""

from __future__ import annotations

import pytest

from fpsim.records.flags import FloatingPointTrap
from tests.ipu.frontends.poptorch.framework import STRATEGIES, data, options, poptorch, torch, train


def test_an_error_in_the_update_leaves_weights_and_state_as_they_were():
    run_options = options(STRATEGIES["unsplit"](), sr=False)
    run_options.Precision.enableFloatingPointExceptions(True)
    model, _ = train(run_options, steps=1)
    last = list(model.model.parameters())[-1]
    before = [p.detach().clone() for p in model.model.parameters()]
    state = {p: s["velocity"].clone() for p, s in model.optimizer.state.items()}
    model.optimizer.state[last]["velocity"].fill_(3e38)
    with pytest.raises(FloatingPointTrap):
        model(*data(21))
    model.optimizer.state[last]["velocity"].copy_(state[last])
    for p, q in zip(model.model.parameters(), before, strict=True):
        assert torch.equal(p, q)
        assert torch.equal(model.optimizer.state[p]["velocity"], state[p])


def test_parameters_without_a_gradient_stay():
    class Unused(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.other = torch.nn.Linear(6, 3), torch.nn.Linear(6, 3)
            self.frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)

        def forward(self, x, labels):
            y = self.layer(x) + self.frozen
            return y, torch.nn.functional.cross_entropy(y, labels)

    net = Unused()
    before = net.other.weight.detach().clone()
    train(options(count=1), net=net, half=False, steps=1, momentum=0)
    assert torch.equal(net.other.weight, before)
    assert net.frozen.tolist() == [1, 1, 1]


def test_groups_have_their_own_rates():
    def optimiser(parameters, **extra):
        first, *rest = parameters
        return poptorch.optim.SGD([{"params": [first], "lr": 0.0}, {"params": rest}], lr=0.1)

    model, _ = train(options(STRATEGIES["unsplit"]()), optimiser, half=False, steps=1)
    torch.manual_seed(0)
    fresh = torch.nn.Linear(6, 8)
    assert torch.equal(model.model.a.weight, fresh.weight)
    assert not torch.equal(model.model.a.bias, fresh.bias)


def test_a_combined_accumulator_of_several_replicas_is_refused():
    with pytest.raises(ValueError, match=r"use_combined_accum=True with 2 replicas is not"):
        train(options(STRATEGIES["unsplit"](), replicas=2), use_combined_accum=True)


@pytest.mark.parametrize("other", [{"nesterov": True}, {"max_grad_norm": 1.0}])
def test_what_a_combined_accumulator_has_not_is_refused(other):
    (name,) = other
    with pytest.raises(ValueError, match=rf"{name}=.* with use_combined_accum=True is not model"):
        train(options(STRATEGIES["unsplit"]()), use_combined_accum=True, **other)


def test_groups_with_different_largest_norms_are_refused():
    def optimiser(parameters, **extra):
        first, *rest = parameters
        return poptorch.optim.SGD(
            [{"params": [first], "max_grad_norm": 2.0}, {"params": rest, "max_grad_norm": 1.0}]
        )

    with pytest.raises(ValueError, match=r"max_grad_norm of the optimiser's groups is \[1.0, 2.0"):
        train(options(STRATEGIES["unsplit"]()), optimiser, steps=1)


@pytest.mark.parametrize("half", [True, False])
def test_updates_that_rounding_swallows_are_in_the_report(half):
    """Counted again from the weights: w - lr·g in the wider format, rounded to the weight's."""

    class Slope(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.linspace(0.5, 40, 64))

        def forward(self, x):
            return poptorch.identity_loss((self.weight * x).sum(), "none")

    net = Slope().half() if half else Slope()
    optimiser = poptorch.optim.SGD(net.parameters(), lr=2.0**-7)
    model = poptorch.trainingModel(net, poptorch.Options(), optimiser)
    x = torch.linspace(-1, 1, 64).reshape(1, 64)
    x[0, :3] = 0
    nonzero = swallowed = 0
    for _ in range(3):
        before = net.weight.detach().clone()
        model(x.to(before.dtype))
        nonzero += int((x != 0).sum())
        swallowed += int(((net.weight.detach() == before) & (x[0] != 0)).sum())
    (row,) = model.report()["swallowed"].values()
    assert (row["nonzero"], row["swallowed"]) == (nonzero, swallowed) == (183, swallowed)
    assert (swallowed > 0) is half
    (shown,) = model.report()["exponents"]["updates"]
    assert shown["zeros"] == 9
    assert sum(shown["counts"].values()) == 183
