"""The pipelining tutorial's network in PyTorch, its data and its model on the simulated machine.

Only here do experiments import torch; where it is missing, they say so.

Source    Graphcore's PopTorch tutorial on pipelining: layers, blocks, sizes, rates.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ipu.feed.data import Data, Images, mnist, or_digits
from ipu.frontends import poptorch

__all__ = ["BLOCKS", "accuracy", "load", "loader", "network", "options", "set_of", "training"]

BLOCKS = ("B1", "B2", "B3", "B4")
#: Mean and deviation of MNIST's pixels, by which images are normalised.
MEAN, DEVIATION = 0.1307, 0.3081
STRATEGIES: dict[str, Callable[..., Any]] = {
    "pipelined": poptorch.PipelinedExecution, "sharded": poptorch.ShardedExecution,
}


class ConvolutionBlock(nn.Module):  # type: ignore[misc]
    """Convolution, maximum pooling, rectifier."""

    def __init__(self, channels: int, filters: int, size: int, pool: int) -> None:
        super().__init__()
        self.convolution, self.pool = nn.Conv2d(channels, filters, size), nn.MaxPool2d(pool)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.pool(self.convolution(x)))


class MnistNetwork(nn.Module):  # type: ignore[misc]
    """Two convolutions, two dense layers; each is a block. With labels the loss comes too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer1, self.layer2 = ConvolutionBlock(1, 10, 5, 2), ConvolutionBlock(10, 20, 5, 2)
        self.layer3, self.layer4 = nn.Linear(320, 256), nn.Linear(256, 10)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        with poptorch.Block("B1"):
            x = self.layer1(x)
        with poptorch.Block("B2"):
            x = self.layer2(x)
        with poptorch.Block("B3"):
            x = torch.relu(self.layer3(x.view(-1, 320)))
        with poptorch.Block("B4"):
            x = self.layer4(x)
            if labels is None:
                return x
            return x, nn.functional.cross_entropy(x, labels)


def network(seed: int) -> MnistNetwork:
    """The network with initial weights of that seed."""
    torch.manual_seed(seed)
    return MnistNetwork()


def load(data_dir: Path | None = None) -> Data:
    """MNIST from its files: the training images, or 8 000 of the test images; else digits."""

    def read() -> Data:
        try:
            return mnist(data_dir=data_dir)
        except ValueError:
            return mnist("t10k:8000/2000", data_dir)

    return or_digits(read, (28, 28, 1))


def set_of(images: Images, limit: int | None = None) -> torch.utils.data.TensorDataset:
    """Normalised images of one channel with their labels."""
    pixels = torch.from_numpy(images.values[:limit, :, :, 0]).float()[:, None]
    labels = torch.from_numpy(images.labels[:limit]).long()
    return torch.utils.data.TensorDataset((pixels - MEAN) / DEVIATION, labels)


def options(
    strategy: str, *, iterations: int, accumulation: int = 10, offload: bool = False, seed: int = 0
) -> poptorch.Options:
    """Options of a training; all micro-batches' outputs come back."""
    settings = poptorch.Options().deviceIterations(iterations).randomSeed(seed)
    settings.outputMode(poptorch.OutputMode.All)
    settings.Training.gradientAccumulation(accumulation)
    settings.setExecutionStrategy(STRATEGIES[strategy](*BLOCKS))
    if offload:
        remote = poptorch.TensorLocationSettings().useOnChipStorage(False)
        settings.TensorLocations.setOptimizerLocation(remote)
    return settings


def loader(
    settings: poptorch.Options, images: Any, batch_size: int, *, shuffle: bool = True
) -> poptorch.DataLoader:
    """Batches of one call."""
    return poptorch.DataLoader(settings, images, batch_size=batch_size, shuffle=shuffle)


def training(
    model: MnistNetwork, settings: poptorch.Options, rate: float
) -> poptorch.PoplarExecutor:
    """The model with AdamW."""
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=rate)
    return poptorch.trainingModel(model, settings, optimizer)


def accuracy(predictions: torch.Tensor, labels: torch.Tensor) -> float:
    """Percent of right predictions; labels are those of the last samples.

    >>> accuracy(torch.eye(4), torch.tensor([9, 0, 1, 2, 0]))
    75.0
    """
    right = predictions.argmax(1) == labels[-len(predictions) :]
    return float(right.double().mean() * 100)
