"""PopART's equations: torch's optimisers in binary32, the formulas in binary64 (differential)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.ipu.frontends.poptorch.framework import poptorch, torch

OPTIM = poptorch.optim


class Slope(torch.nn.Module):
    """A loss whose gradient of the weight is the input."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=dtype))

    def forward(self, x):
        return poptorch.identity_loss((self.weight * x).sum(), "none")


def slopes(steps=5):
    rng = np.random.default_rng(0)
    return [torch.tensor(rng.normal(size=(1, 4)), dtype=torch.float32) for _ in range(steps)]


def after(build, dtype=torch.float32, steps=5, **settings):
    """The weight after some steps of an optimiser of PopTorch's."""
    net, options = Slope(dtype), poptorch.Options()
    options.Precision.enableStochasticRounding(settings.get("sr", False))
    model = poptorch.trainingModel(net, options, build(net.parameters()))
    for x in slopes(steps):
        model(x.to(dtype))
    return net.weight.detach().double().numpy(), model


def natively(build, steps=5):
    """The weight after the same steps by torch."""
    net = Slope()
    optimizer = build(net.parameters())
    for x in slopes(steps):
        optimizer.zero_grad()
        net(x).backward()
        optimizer.step()
    return net.weight.detach().double().numpy()


SAME = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True}),
]


@pytest.mark.parametrize(("name", "choices"), SAME)
@pytest.mark.parametrize("scale", [1.0, 64.0])
def test_where_popart_and_torch_agree_the_weights_do(name, choices, scale):
    """AdamW: PopART adds the decay to the step, torch applies it first; the product lr·wd differs
    in no digit that counts here. A loss scale, a power of two, changes nothing."""
    expected = natively(lambda p: getattr(torch.optim, name)(p, **choices))
    result, _ = after(lambda p: getattr(OPTIM, name)(p, loss_scaling=scale, **choices))
    tolerance = 2e-5 if name == "AdamW" else 2e-6
    assert np.abs(result - expected).max() <= tolerance


def test_torchs_optimisers_are_applied_by_the_same_equations():
    for name, choices in SAME[:2]:
        one, _ = after(lambda p, n=name, c=choices: getattr(torch.optim, n)(p, **c))
        two, _ = after(lambda p, n=name, c=choices: getattr(OPTIM, n)(p, **c))
        assert np.array_equal(one, two)


def dampened(lr=0.1, momentum=0.9, dampening=0.5, decay=0.01):
    """PopART: v also dampens the decay, and in the first step."""
    w, v = Slope().weight.detach().double().numpy().copy(), 0.0
    for x in slopes():
        v = momentum * v + (1 - dampening) * (x[0].double().numpy() + decay * w)
        w = w - lr * v
    return w


def test_dampening_is_popartss():
    result, _ = after(lambda p: OPTIM.SGD(p, 0.1, momentum=0.9, dampening=0.5, weight_decay=0.01))
    assert np.abs(result - dampened()).max() < 1e-6


def test_dampening_is_of_sgd_without_momentum_too():
    """PopART's SGD0 has lr·(1-dm)/ls and 1 - lr·(1-dm)·wd; torch has no dampening there."""
    w = Slope().weight.detach().double().numpy().copy()
    for x in slopes():
        w = w - 0.1 * 0.75 * (x[0].double().numpy() + 0.01 * w)
    for kind in (OPTIM.SGD, torch.optim.SGD):
        result, _ = after(lambda p, k=kind: k(p, 0.1, dampening=0.25, weight_decay=0.01))
        assert np.abs(result - w).max() < 1e-6


def combined(scale, lr=0.1, momentum=0.9, decay=0.01):
    """v ← v + vs·g; w ← w - (lr/vs)·v; v ← mm·v + wd·vs·w, the decay "once up front too"."""
    w = Slope().weight.detach().double().numpy().copy()
    v = decay * scale * w
    for x in slopes():
        v = v + scale * x[0].double().numpy()
        w = w - lr / scale * v
        v = momentum * v + decay * scale * w
    return w


@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_a_combined_accumulator_is_the_velocity(scale):
    result, model = after(lambda p: OPTIM.SGD(
        p, 0.1, momentum=0.9, weight_decay=0.01, use_combined_accum=True, velocity_scaling=scale
    ))
    assert np.abs(result - combined(scale)).max() < 1e-6
    assert set(model.optimizer.state[model.model.weight]) == {"velocity"}


def test_separate_and_combined_accumulators_are_one_equation():
    """Velocity, decay and dampening of both are the same, from the first step on."""
    choices = {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}
    one, _ = after(lambda p: OPTIM.SGD(p, **choices))
    two, _ = after(lambda p: OPTIM.SGD(p, **choices, use_combined_accum=True))
    assert np.abs(one - two).max() < 1e-6


def lamb(correct, largest, lr=0.01, b1=0.9, b2=0.999, eps=1e-6, decay=0.01):
    w, m, v = Slope().weight.detach().double().numpy().copy(), 0.0, 0.0
    for t, x in enumerate(slopes(), 1):
        g = x[0].double().numpy()
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        c1, c2 = (1 - b1**t, 1 - b2**t) if correct else (1, 1)
        u = m / c1 / (np.sqrt(v / c2) + eps) + decay * w
        w = w - min(np.linalg.norm(w), largest) / np.linalg.norm(u) * lr * u
    return w


@pytest.mark.parametrize(("correct", "largest"), [(True, 65500.0), (False, 65500.0), (True, 1.0)])
def test_lamb_scales_by_the_ratio_of_norms(correct, largest):
    result, _ = after(lambda p: OPTIM.LAMB(
        p, lr=0.01, eps=1e-6, bias_correction=correct, max_weight_norm=largest
    ))
    assert np.abs(result - lamb(correct, largest)).max() < 1e-5


def rms_tf(lr=0.01, alpha=0.9, eps=1e-3, momentum=0.5):
    w, v, u = Slope().weight.detach().double().numpy().copy(), 0.0, 0.0
    for x in slopes():
        g = x[0].double().numpy()
        v = alpha * v + (1 - alpha) * g * g
        u = momentum * u + lr * g / np.sqrt(v + eps)
        w = w - u
    return w


def test_the_tensorflow_variant_of_rmsprop():
    result, _ = after(lambda p: OPTIM.RMSprop(
        p, lr=0.01, alpha=0.9, eps=1e-3, momentum=0.5, use_tf_variant=True
    ))
    assert np.abs(result - rms_tf()).max() < 1e-5


def test_gradients_are_clipped_to_a_norm_of_all():
    """One step of rate 1: the weight moves by the clipped gradient."""
    start = Slope().weight.detach().double().numpy()
    complete = slopes(1)[0][0].double().numpy()
    result, _ = after(lambda p: OPTIM.SGD(p, 1.0, max_grad_norm=0.5, loss_scaling=4.0), steps=1)
    moved = start - result
    assert math.isclose(np.linalg.norm(moved), 0.5, rel_tol=1e-6)
    assert np.allclose(moved / 0.5, complete / np.linalg.norm(complete), atol=1e-6)
    result, _ = after(lambda p: OPTIM.SGD(p, 1.0, max_grad_norm=1e3), steps=1)
    assert np.allclose(start - result, complete, atol=1e-6)


def test_the_largest_norm_is_of_the_gradients_of_all_groups():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Slope(), Slope()

        def forward(self, x):
            return poptorch.identity_loss((self.a.weight * x + 2 * self.b.weight * x).sum(), "none")

    def moved(groups):
        net = Two()
        optimiser = OPTIM.SGD(groups(net), lr=1.0, max_grad_norm=0.5)
        poptorch.trainingModel(net, poptorch.Options(), optimiser)(slopes(1)[0])
        start = Slope().weight.detach()
        return torch.cat([start - net.a.weight.detach(), start - net.b.weight.detach()])

    together = moved(lambda net: net.parameters())
    apart = moved(lambda net: [{"params": [net.a.weight]}, {"params": [net.b.weight]}])
    assert math.isclose(float(together.norm()), 0.5, rel_tol=1e-6)
    assert torch.equal(together, apart)


def test_float16_weights_hold_binary16_numbers_and_states_their_types():
    result, model = after(
        lambda p: OPTIM.Adam(p, lr=0.01, eps=1e-4, first_order_momentum_accum_type=torch.float16),
        dtype=torch.float16,
    )
    assert np.array_equal(result, result.astype(np.float16))
    state = model.optimizer.state[model.model.weight]
    assert (state["exp_avg"].dtype, state["exp_avg_sq"].dtype) == (torch.float16, torch.float32)
    assert state["step"].item() == 5


def test_a_small_update_of_a_float16_weight_needs_stochastic_rounding():
    """3 - 250 · 1e-4: to nearest the weight stays (half an ulp is 0.00098)."""

    class Down(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((64,), 3.0).half())

        def forward(self, x):
            return poptorch.identity_loss((self.weight * x).sum(), "none")

    def mean(sr):
        net, options = Down(), poptorch.Options().deviceIterations(50)
        options.Precision.enableStochasticRounding(sr)
        model = poptorch.trainingModel(net, options, OPTIM.SGD(net.parameters(), lr=5e-4))
        model(torch.ones(50, 1).half())
        return net.weight.detach().float().mean().item()

    assert mean(False) == 3.0
    assert abs(mean(True) - (3 - 0.025)) < 0.005  # 9 standard deviations of the mean


def test_a_constant_that_does_not_fit_is_reported():
    _, model = after(
        lambda p: OPTIM.Adam(p, lr=0.01, second_order_momentum_accum_type=torch.float16,
                             first_order_momentum_accum_type=torch.float16),
        dtype=torch.float16,
    )
    results = [c for c in model.report()["constants"] if c["value"] == 1e-8]
    assert results[0]["layer"] == "optimizer"
    assert results[0]["becomes"] == "zero"
