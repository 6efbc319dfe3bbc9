"""The tutorial's network in PyTorch: layers, accuracy, options (golden)."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; run: make test-torch")

from ipu.experiments.execution import mnist_network as tutorial  # noqa: E402
from ipu.feed.data import Images  # noqa: E402


@pytest.mark.source("S2-11")
def test_the_network_has_the_tutorials_layers():
    shapes = {name: tuple(p.shape) for name, p in tutorial.network(0).named_parameters()}
    assert shapes["layer1.convolution.weight"] == (10, 1, 5, 5)
    assert shapes["layer2.convolution.weight"] == (20, 10, 5, 5)
    assert shapes["layer3.weight"] == (256, 320)
    assert shapes["layer4.weight"] == (10, 256)
    x = torch.zeros(2, 1, 28, 28)
    assert tuple(tutorial.network(0)(x).shape) == (2, 10)
    output, loss = tutorial.network(0)(x, torch.tensor([1, 2]))
    assert (tuple(output.shape), loss.ndim) == ((2, 10), 0)
    weights = [tutorial.network(seed).layer3.weight for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.source("S2-05")
def test_images_are_normalised():
    pixels = np.array([0, 255], np.uint8).reshape(2, 1, 1, 1)
    (dark, bright), labels = tutorial.set_of(Images(pixels, np.array([3, 4]))).tensors
    assert dark.item() == pytest.approx(-0.1307 / 0.3081)
    assert bright.item() == pytest.approx((1 - 0.1307) / 0.3081)
    assert labels.tolist() == [3, 4]


@pytest.mark.source("S2-31")
def test_accuracy_has_its_known_answer_and_takes_the_last_labels():
    predictions = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]])
    assert tutorial.accuracy(predictions, torch.tensor([1, 0, 0, 1, 0, 0])) == 75.0


def test_options_say_strategy_and_offload():
    options = tutorial.options("sharded", iterations=3, accumulation=4, offload=True, seed=5)
    assert (options.device_iterations, options.random_seed) == (3, 5)
    assert options.Training.gradient_accumulation == 4
    assert options.execution_strategy.schedule == "sequential"
    assert "location_optimizer={'onChip': 0}" in repr(options)
