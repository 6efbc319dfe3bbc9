"""Models of torchvision, transformers and timm, unedited (differential: torch, binary64)."""

from __future__ import annotations

import copy
import statistics
from importlib.util import find_spec

import pytest

from tests.ipu.frontends.torch.framework import machine, torch
from tests.tiers import reaches

models = pytest.importorskip("tests.ipu.frontends.torch.models")
MISSING = [p for p in ("torchvision", "transformers", "timm") if find_spec(p) is None]

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}; run: make test-torch"),
]
#: One of each kind; all in the full tier.
NAMES = list(models.MODELS) if reaches("full") else ["shufflenet", "bert", "mixer"]
SEEDS = 5 if reaches("full") else 3


def gradient(case, module, dtype=None):
    """The gradient of the loss to every parameter, in one row of binary64 numbers."""
    module.zero_grad()
    case.loss(module, dtype).backward()
    return torch.cat([p.grad.double().flatten() for p in module.parameters() if p.grad is not None])


def errors(name, seed):
    """Relative error of the machine's gradient and of torch's, against binary64."""
    case = models.build(name, seed)
    wide = copy.deepcopy(case.module).double()
    exact = gradient(case, wide, torch.float64)
    native = gradient(case, copy.deepcopy(case.module))
    with machine("f32", f32_denormals="ieee") as run:
        ours = gradient(case, case.module)
    report = run.report()
    assert report["native"] == 0
    assert report["host"]["share"] <= 0.01
    return [((result - exact).norm() / exact.norm()).item() for result in (ours, native)]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_as_near_to_binary64_as_those_of_torch(name):
    """The median: one rounding may turn a unit of a small batch off, and move all gradients."""
    ours, native = zip(*(errors(name, seed) for seed in range(SEEDS)), strict=True)
    assert statistics.median(ours) <= 5 * statistics.median(native), (ours, native)


@pytest.mark.parametrize("options", [{}, {"policy": "f16", "sr": True, "count": True}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_training_runs_on_the_machine_alone(name, options):
    case = models.build(name)
    optimiser = torch.optim.AdamW(case.module.parameters(), lr=1e-3, eps=1e-4)
    before = [p.detach().clone() for p in case.module.parameters()]
    with machine(**options) as run:
        for _ in range(2):
            optimiser.zero_grad()
            loss = case.loss()
            loss.backward()
            optimiser.step()
    report = run.report()
    assert torch.isfinite(loss)
    assert report["native"] == 0
    assert report["host"]["share"] <= 0.01
    assert report["steps"] == 2
    changed = [not torch.equal(p, q) for p, q in zip(case.module.parameters(), before, strict=True)]
    assert sum(changed) >= 0.9 * len(changed)
