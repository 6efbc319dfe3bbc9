"""What a session looks at (differential, law)."""

from __future__ import annotations

from contextlib import nullcontext
from inspect import currentframe

import numpy as np
import pytest

from tests.ipu.frontends.torch.framework import machine, mlp, run, torch, train

from ipu.frontends.torch.observing import following_losses, term  # isort: skip

COUNTED = {"policy": "p=f16,c=f16", "sr": True, "count": True}


@pytest.mark.parametrize(
    ("base", "options"),
    [("add", {"alpha": -0.5}), ("sub", {"alpha": 0.5}), ("addcmul", {"value": 2.0}),
     ("addcdiv", {"value": -0.25})],
)
def test_terms_are_what_torch_adds(base, options):
    x, y, z = (torch.rand(5) + 0.5 for _ in range(3))
    operands = (y,) if base in ("add", "sub") else (y, z)
    after = getattr(x.double(), base)(*(o.double() for o in operands), **options)
    added = term(base, (x, *operands), options)
    sign = -1 if base == "sub" else 1
    np.testing.assert_allclose(sign * added, (after - x.double()).numpy(), rtol=1e-6)


def test_a_quotient_by_zero_is_still_an_update():
    zero = torch.zeros(2)
    added = term("addcdiv", (zero, torch.tensor([1.0, 0.0]), zero), {"value": -1.0})
    assert added[0] == -np.inf
    assert np.isnan(added[1])
    assert term("mul", (zero, 0.5), {}) is None


class Noted:
    """Losses and scales that were told, and a factor of 4."""

    def __init__(self):
        self.roots, self.scales = [], []

    def note_loss(self, root):
        self.roots.append(float(root.detach()))

    def note_scale(self, scale):
        self.scales.append(scale)

    def root_gradient(self, root, gradient):
        return torch.full_like(root, 4.0) if gradient is None else gradient * 4.0

    def scaling(self):
        return nullcontext()


def test_losses_are_noted_and_torch_is_as_it_was():
    before = torch.autograd.backward, torch.amp.GradScaler.scale
    noted, x = Noted(), torch.ones(2, requires_grad=True)
    with following_losses(noted):
        (x.sum() * 3).backward()
        torch.amp.GradScaler("cpu", init_scale=8.0).scale(x.sum()).backward(torch.tensor(1.0))
        torch.autograd.backward([x.sum(), x * 1.0], [None, torch.ones(2)])
    assert noted.roots == [6.0, 16.0, 2.0]
    assert noted.scales == [8.0]
    assert x.grad.tolist() == [4 * 3 + 4 * 8 + 4 + 4] * 2
    assert (torch.autograd.backward, torch.amp.GradScaler.scale) == before


@pytest.mark.parametrize(
    "begin",
    [
        lambda x: (x * 2).backward(),
        lambda x: torch.ones(()).backward(),
        lambda x: torch.autograd.backward([x.sum(), x.sum()], [None]),
        lambda x: x.sum().backward(torch.ones(2)),
        lambda x: torch.autograd.backward("loss"),
    ],
)
def test_what_torch_refuses_is_refused_in_its_words(begin):
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(Exception) as native:  # noqa: PT011
        begin(x)
    with machine("f16"), pytest.raises(type(native.value)) as ours:
        begin(x)
    assert str(ours.value) == str(native.value)


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
def test_recording_changes_no_bit(optimiser):
    losses, nets = [], []
    for count in (False, True):
        nets.append(mlp())
        options = COUNTED | {"count": count}
        settings = {} if optimiser is torch.optim.SGD else {"eps": 1e-4}
        ran = run(train, nets[-1], (6,), 4, optimiser, machine_options=options, **settings)
        losses.append(ran[0])
    assert losses[0] == losses[1]
    for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("half", [False, True])
def test_swallowed_updates_are_counted_exactly(half):
    weights = torch.full((1000,), 1.0)
    layer = torch.nn.Linear(1000, 1, bias=False)
    layer.weight.data.copy_(weights)
    layer = layer.half() if half else layer
    rates = torch.where(torch.arange(1000) < 300, 2.0**-8, 2.0**-12)
    with machine("p=f16,c=f16", count=True) as session:
        optimiser = torch.optim.SGD(layer.parameters(), lr=1.0)
        layer(rates.to(layer.weight.dtype)).sum().backward()
        step_line = currentframe().f_lineno + 1
        optimiser.step()
    # The update of 2**-12 is half an ulp below 1: a tie, which goes back to the even 1.
    row = session.report()["swallowed"]["Linear"]
    assert (row["nonzero"], row["swallowed"]) == (1000, 700)
    assert row["parameters"] == {"weight": {"nonzero": 1000, "swallowed": 700}}
    assert (row["format"], row["step"]) == ("binary16", 0)
    assert row["line"].endswith(f"test_observing.py:{step_line}")
    assert int((layer.weight.detach() == 1).sum()) == 700


@pytest.mark.source("S3-32")
def test_histograms_are_those_of_the_tensors():
    net = mlp()
    with machine("p=f16,c=f16", count=True) as session:
        hidden = net[0](torch.randn(50, 6))
    exponents = session.report()["exponents"]
    (row,) = [r for r in exponents["activations"] if r["layer"] == "Linear"]
    values = hidden.detach().numpy()
    # The product and the sum with the bias are one result of the operation.
    expected = np.frexp(np.abs(values[values != 0]))[1] - 1
    assert row["counts"] == {int(e): int((expected == e).sum()) for e in np.unique(expected)}
    (weights,) = exponents["weights"]
    assert sum(weights["counts"].values()) + weights["zeros"] == 6 * 8 + 8


def test_the_scale_of_a_gradient_scaler_is_the_present_one():
    net = mlp()
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    with machine("p=f32,c=f16", nanoo=True, count=True) as session:
        optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
        loss = net(torch.randn(4, 6)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
    report = session.report()
    assert report["loss_scale"]["present"] == 256.0
    assert report["losses"] == pytest.approx([loss.item()], rel=2e-3)
