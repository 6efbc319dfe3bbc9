"""Loops of accelerate, unedited: training, empty weights, states (differential, law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import machine, torch
from tests.ipu.frontends.torch.huggingface.programs import WAYS, bits, classifier, points

accelerate = pytest.importorskip(
    "accelerate", reason="accelerate is not installed; run: make test-huggingface"
)
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{category}")
    for category in ("UserWarning", "DeprecationWarning", "FutureWarning")
]


def loop(folder=None, epochs=2, first=0, accumulate=1, **options):
    """Losses and network of a training with a schedule and clipping, as in accelerate's guide."""
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    net = classifier()
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2, eps=1e-4, **options)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 4, 0.5)
    loader = torch.utils.data.DataLoader(points(), 8)
    net, optimiser, loader, schedule = accelerator.prepare(net, optimiser, loader, schedule)
    if first:
        accelerator.load_state(str(folder))
    losses = []
    for epoch in range(first, epochs):
        for x, y in loader:
            with accelerator.accumulate(net):
                loss = torch.nn.functional.cross_entropy(net(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimiser.step()
                schedule.step()
                optimiser.zero_grad()
            losses.append(accelerator.gather(loss).item())
        if folder and epoch == 0:
            accelerator.save_state(str(folder))
    return losses, accelerator.unwrap_model(net)


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": True}, {"accumulate": 2}],
                         ids=str)
def test_a_loop_follows_torch(options):
    expected, _ = loop(**options)
    with machine() as session:
        losses, _ = loop(**options)
    assert losses == pytest.approx(expected, rel=2e-5)
    report = session.report()
    assert report["native"] == report["host"]["elements"] == 0
    assert report["steps"] == 8 // options.get("accumulate", 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_saved_state_goes_on_bit_by_bit(way, tmp_path):
    with machine(**WAYS[way]):
        losses, whole = loop(tmp_path)
    with machine(**WAYS[way]):
        second, resumed = loop(tmp_path, first=1)
    assert second == losses[4:]
    assert bits(resumed) == bits(whole)


def test_empty_weights_are_filled_from_a_checkpoint():
    """As large models are loaded: a skeleton first, then the file's tensors in its place."""
    net = classifier()
    with machine("fp16") as session:
        with accelerate.init_empty_weights():
            empty = classifier()
        assert {p.device.type for p in empty.parameters()} == {"meta"}
        empty.load_state_dict(net.state_dict(), assign=True)
        assert torch.equal(empty(torch.ones(2, 6)), net(torch.ones(2, 6)))
    assert session.report()["native"] == 0
