"""torch.utils.checkpoint repeats the random bits of the forward pass (law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import machine, torch

checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint


class Net(torch.nn.Module):
    """A block that may be recomputed: as a module, as a function, nested."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.a = torch.nn.Linear(6, 8)
        self.b = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.LayerNorm(8))
        self.c = torch.nn.Linear(8, 3)

    def middle(self, x):
        return self.b(x) + x * 0.3

    def nested(self, x):
        return checkpoint(self.b, x, use_reentrant=False) + x * 0.3

    def forward(self, x):
        x = torch.sigmoid(self.a(x))
        if self.how == "plain":
            x = self.middle(x)
        elif self.how == "module":
            x = checkpoint(self.b, x, use_reentrant=False) + x * 0.3
        elif self.how == "nested":
            x = checkpoint(self.nested, x, use_reentrant=False)
        else:
            x = checkpoint(self.middle, x, use_reentrant=self.how == "reentrant")
        return self.c(torch.tanh(x))


def trained(how):
    torch.manual_seed(0)
    net = Net(how)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(4, 5, 6), torch.randint(0, 3, (4, 5))
    with machine("p=f16,c=f16", sr=True, count=True) as session:
        for i in range(4):
            torch.nn.functional.cross_entropy(net(x[i]), y[i]).backward()
            if i % 2:
                optimiser.step()
                optimiser.zero_grad()
    return [p.detach() for p in net.parameters()], session


@pytest.mark.parametrize("how", ["module", "function", "reentrant", "nested"])
def test_recomputation_moves_no_bits(how):
    expected, _ = trained("plain")
    parameters, session = trained(how)
    for p, q in zip(parameters, expected, strict=True):
        assert torch.equal(p, q)
    layers = session.report()["layers"]
    assert "recompute" in layers["b.0"]
    assert "recompute" not in layers["a"]


def test_without_replay_the_bits_would_differ(monkeypatch):
    """The test above can fail: a recomputation that goes on counting draws other bits."""
    from contextlib import nullcontext

    from ipu.frontends.torch import Session

    expected, _ = trained("plain")
    monkeypatch.setattr(Session, "_again", lambda self, mark: nullcontext())
    parameters, _ = trained("function")
    assert not all(torch.equal(p, q) for p, q in zip(parameters, expected, strict=True))


def test_checkpoint_is_as_before_afterwards():
    module = torch.utils.checkpoint
    before = module.CheckpointFunction, module._checkpoint_without_reentrant_generator
    with machine():
        assert module.CheckpointFunction is not before[0]
    assert (module.CheckpointFunction, module._checkpoint_without_reentrant_generator) == before
