"""The networks of the benchmark in torch, where it is installed: in binary32, and by QPyTorch.

QPyTorch rounds what a layer gives and what it gets back, stochastically to binary16; inside a layer
torch computes in binary32. It compiles itself when it is first imported, which takes minutes.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

from numpy.typing import NDArray

from fpsim.state.threads import get_threads
from ipu.experiments.bench.timing import Call
from ipu.experiments.training.half_networks import transformer

__all__ = ["IMAGES", "Peer", "classifying", "peers", "torch_step", "training_step"]

#: The shape of an image of networks that torch alone has.
IMAGES = {"Transformer": (8, 8, 1)}

#: Exponent bits and digits after the first of binary16.
_HALF = 5, 10


class Peer(NamedTuple):
    """A tool with its version, and one step of training in it."""

    name: str
    call: Call


def peers(network: str, images: NDArray[Any], labels: NDArray[Any]) -> list[Peer]:
    """A step on a batch NHWC by every tool that is installed."""
    candidates = [make(network, images, labels) for make in (torch_step, _qtorch_step)]
    return [peer for peer in candidates if peer is not None]


def torch_step(network: str, images: NDArray[Any], labels: NDArray[Any]) -> Peer | None:
    """A step in binary32; None without torch."""
    torch = _torch()
    if torch is None:
        return None
    return Peer(f"torch {version('torch')}", training_step(torch, network, images, labels))


def training_step(
    torch: Any, network: str, images: NDArray[Any], labels: NDArray[Any],
    rounded: Callable[[Any], None] = lambda model: None,
    optimizer: Callable[[Any], Any] = lambda plain: plain,
) -> Call:
    """A step of SGD with momentum; what a tool does to the model and to the optimiser."""
    x = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    y = torch.from_numpy(labels)
    model = _MODELS[network](torch)
    rounded(model)
    sgd = optimizer(torch.optim.SGD(model.parameters(), 0.01, momentum=0.9))
    return classifying(torch, model, sgd, x, y)


def classifying(torch: Any, model: Any, optimizer: Any, x: Any, y: Any) -> Call:
    """A step of a network that tells classes, as users write it."""

    def call() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return call


def _qtorch_step(network: str, images: NDArray[Any], labels: NDArray[Any]) -> Peer | None:
    """A step with every layer's results, gradients, weights and momentum in binary16, by SR."""
    torch = _torch()
    if torch is None or importlib.util.find_spec("qtorch") is None:
        return None
    quant: Any = importlib.import_module("qtorch.quant")
    number = importlib.import_module("qtorch").FloatingPoint(*_HALF)
    by_sr = {"forward_number": number, "forward_rounding": "stochastic"}
    quantized = quant.quantizer(**by_sr)
    layer = quant.Quantizer(**by_sr, backward_number=number, backward_rounding="stochastic")

    def rounded(model: Any) -> None:
        for module in model.modules():
            if not list(module.children()):
                module.register_forward_hook(lambda module, inputs, output: layer(output))

    def optimizer(plain: Any) -> Any:
        optim: Any = importlib.import_module("qtorch.optim")
        return optim.OptimLP(
            plain, weight_quant=quantized, grad_quant=quantized, momentum_quant=quantized
        )

    call = training_step(torch, network, images, labels, rounded, optimizer)
    return Peer(f"qtorch {version('qtorch')}", call)


def _torch() -> Any:
    """torch with as many threads as the kernels; None where it is missing."""
    if importlib.util.find_spec("torch") is None:
        return None
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(get_threads())
    return torch


def _digits(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 5), nn.MaxPool2d(2),
        nn.ReLU(), nn.Flatten(), nn.Linear(320, 256), nn.ReLU(), nn.Linear(256, 10),
    )


def _resnet(torch: Any) -> Any:
    nn = torch.nn
    sections = [_block(nn, 16, 16, 1), _block(nn, 16, 32, 2), _block(nn, 32, 64, 2)]
    first = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*first, *sections, *last)


def _block(nn: Any, before: int, filters: int, stride: int) -> Any:
    """Batch norm, then two convolutions beside the way around them."""

    class ResidualBlock(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.relu = nn.BatchNorm2d(before), nn.ReLU()
            self.first = nn.Conv2d(before, filters, 3, stride, padding=1)
            self.second = nn.Conv2d(filters, filters, 3, padding=1)
            self.around = nn.Conv2d(before, filters, 2, 2) if stride > 1 else nn.Identity()

        def forward(self, x: Any) -> Any:
            x = self.norm(x)
            return self.relu(self.second(self.relu(self.first(x))) + self.around(x))

    return ResidualBlock()


_MODELS: dict[str, Callable[[Any], Any]] = {
    "ResNet-8": _resnet, "MNIST CNN": _digits, "Transformer": transformer,
}
