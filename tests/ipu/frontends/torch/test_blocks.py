"""Validation between steps draws bits of its own and moves none of the training's (law)."""

from __future__ import annotations

import copy
from contextlib import contextmanager

import pytest

from tests.ipu.frontends.torch.framework import machine, mlp, torch

blocks = pytest.importorskip("ipu.frontends.torch.blocks")
checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint
optim = torch.optim
F = torch.nn.functional


@contextmanager
def grad_disabled():
    """set_grad_enabled as statements."""
    torch.set_grad_enabled(False)
    yield
    torch.set_grad_enabled(True)


WAYS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
    "statement": grad_disabled,
}


class Scaled(torch.autograd.Function):
    """A function of autograd that computes, in a block of its own too."""

    @staticmethod
    def forward(ctx, x):
        with torch.no_grad():
            return x * 0.3

    @staticmethod
    def backward(ctx, gradient):
        with torch.no_grad():
            return gradient * 0.3


class Net(torch.nn.Module):
    """Blocks without gradients, checkpoints and functions of autograd inside of a forward pass."""

    def __init__(self, how="plain"):
        super().__init__()
        torch.manual_seed(0)
        self.how = how
        self.a = torch.nn.Linear(6, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.b = torch.nn.Linear(8, 3)
        if how == "spectral_norm":
            self.b = torch.nn.utils.parametrizations.spectral_norm(self.b)

    def middle(self, x):
        return self.norm(torch.tanh(x))

    def forward(self, x):
        x = self.a(x)
        if self.how == "nested":
            with torch.no_grad():
                x = x + torch.sigmoid(x.mean(1, keepdim=True)) * 0.1
        if self.how == "function":
            x = Scaled.apply(x)
        if self.how.startswith("checkpoint"):
            return self.b(checkpoint(self.middle, x, use_reentrant=self.how == "checkpoint r"))
        return self.b(self.middle(x))


def trained(net, validate=None, steps=3, after=None):
    """The parameters after some steps, with a validation between passes or without."""
    torch.manual_seed(1)
    x, y = torch.randn(steps, 5, 6), torch.randint(0, 3, (steps, 5))
    with machine("f16", sr=True) as session:
        optimiser = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for i in range(steps):
            for _ in range(2):
                if validate:
                    validate(net)
                F.cross_entropy(net(x[i]), y[i]).backward()
                if validate:
                    validate(net)
            optimiser.step()
            optimiser.zero_grad()
            if after:
                after(net)
    return [p.detach().clone() for p in net.parameters()], session


def equal(one, other):
    return all(torch.equal(p, q) for p, q in zip(one, other, strict=True))


@pytest.mark.parametrize("way", WAYS)
def test_a_validation_moves_no_bits_of_the_training(way):
    def validate(net):
        with WAYS[way]():
            loss = F.cross_entropy(net(torch.ones(4, 6)), torch.zeros(4, dtype=torch.long))
            (loss * 0.1 + 0.2).item()

    expected, _ = trained(mlp())
    parameters, session = trained(mlp(), validate)
    assert equal(parameters, expected)
    assert session.step == 3


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(
    "how", ["nested", "function", "checkpoint r", "checkpoint", "spectral_norm"]
)
def test_what_a_training_does_without_gradients_is_the_trainings(how):
    """Validated in copies, so that states that a forward pass moves stay equal."""

    def validate(net):
        with torch.no_grad():
            copy.deepcopy(net).eval()(torch.ones(4, 6))

    expected, _ = trained(Net(how))
    parameters, _ = trained(Net(how), validate)
    assert equal(parameters, expected)


def test_blocks_inside_of_a_forward_pass_are_forward():
    net = Net("nested")
    with machine("f16", count=True) as session:
        net(torch.ones(2, 6)).sum().backward()
    assert set(session.report()["layers"]["Net"]) == {"forward"}
    with machine("f16", count=True) as session, torch.no_grad():
        net(torch.ones(2, 6))
    assert set(session.report()["layers"]["Net"]) == {"evaluation"}


@pytest.mark.parametrize("way", WAYS)
def test_blocks_draw_different_bits(way):
    net, x = mlp(), torch.ones(64, 6)
    with machine("f16", sr=True):
        results = []
        for _ in range(3):
            with WAYS[way]():
                results.append(net(x))
        with WAYS[way]():
            results += [net(x), net(x)]  # two tokens of one loop
    for i, one in enumerate(results):
        assert not any(torch.equal(one, other) for other in results[i + 1 :])


def test_numbers_of_blocks_and_passes_are_places():
    from ipu.run.places import Place, number

    net, x = torch.nn.Linear(3, 3), torch.ones(2, 3)
    with machine("f16", sr=True) as session:
        net(x)
        for _ in range(2):
            with torch.no_grad():
                net(x)
                after = session.clock.place, session.clock.operation
    place = Place(0, 1, 0, "Linear", "evaluation")
    assert after == (place, number(place, 2))


def test_a_generator_decorated_draws_on():
    net = mlp()

    @torch.no_grad()
    def generate(x):
        for _ in range(3):
            yield net(x)

    with machine("f16", sr=True):
        first, second, third = generate(torch.ones(64, 6))
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)


def test_evaluation_mode_alone_stays_forward():
    net = mlp().eval()
    with machine("f16", count=True) as session:
        net(torch.ones(2, 6))
    assert set(session.report()["layers"]["0"]) == {"forward"}


def test_averages_of_parameters_and_what_reads_gradients_are_updates():
    def run(validate):
        net = mlp()
        with machine("f16", sr=True, count=True) as session:
            average = copy.deepcopy(net)
            optimiser = optim.SGD(net.parameters(), lr=0.1)
            norms = []
            for _ in range(3):
                net(torch.ones(4, 6)).square().sum().backward()
                if validate:
                    with torch.no_grad():
                        net(torch.ones(3, 6))
                        average(torch.ones(3, 6))
                with torch.no_grad():
                    total = torch.stack([p.grad.norm() * 0.7 for p in net.parameters()]).norm()
                    norms.append((total * 0.3).item())
                    for p in net.parameters():
                        p.grad.mul_(0.9)
                optimiser.step()
                optimiser.zero_grad()
                if validate:
                    with torch.inference_mode():
                        net(torch.ones(3, 6))
                with torch.no_grad():
                    for a, p in zip(average.parameters(), net.parameters(), strict=True):
                        a.mul_(0.9).add_(p, alpha=0.1)
        return [*net.parameters(), *average.parameters()], norms, session

    (expected, norms, plain), (got, others, session) = run(False), run(True)
    assert equal(got, expected)
    assert norms == others
    directions = {d for row in plain.report()["layers"].values() for d in row}
    assert directions == {"forward", "backward", "optimizer"}
    assert session.step == 3


def test_torchs_own_averages_are_updates():
    def run(validate):
        net = mlp()
        average = optim.swa_utils.AveragedModel(
            net, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )

        def after(net):
            if validate:
                with torch.no_grad():
                    net(torch.ones(3, 6))
            average.update_parameters(net)

        trained(net, after=after)
        return [p.detach() for p in average.parameters()]

    assert equal(run(False), run(True))


def test_a_session_inside_of_a_block_computes_in_it():
    net = mlp()
    with torch.no_grad(), machine("f16", count=True) as session:
        net(torch.ones(2, 6))
    assert set(session.report()["layers"]["0"]) == {"evaluation"}


def test_classes_of_torch_are_as_they_were():
    classes = (torch.no_grad, torch.inference_mode, torch.set_grad_enabled, torch.enable_grad)
    before = [dict(vars(c)) for c in classes]
    with machine():
        assert any(dict(vars(c)) != b for c, b in zip(classes, before, strict=True))
    assert [dict(vars(c)) for c in classes] == before


def test_places_of_blocks_are_forgotten():
    net = mlp()
    with machine("f16", sr=True) as session:
        for _ in range(50):
            with torch.no_grad():
                net(torch.ones(2, 6))
        assert len(session._calls) + len(session._block_calls) < 10
        assert len(session.clock._counts) < 10
