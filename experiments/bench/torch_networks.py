"""The same networks in torch, in binary32, where torch is installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

from numpy.typing import NDArray

from fpsim.state.threads import get_threads
from ipu.experiments.bench.timing import Call

__all__ = ["Peer", "torch_step"]


class Peer(NamedTuple):
    """A tool with its version, and one step of training in it."""

    name: str
    call: Call


def torch_step(network: str, images: NDArray[Any], labels: NDArray[Any]) -> Peer | None:
    """A step of SGD with momentum on a batch NHWC; None without torch."""
    if importlib.util.find_spec("torch") is None:
        return None
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(get_threads())
    x = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    y = torch.from_numpy(labels)
    model = _MODELS[network](torch.nn)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def call() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return Peer(f"torch {version('torch')}", call)


def _digits(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 5), nn.MaxPool2d(2),
        nn.ReLU(), nn.Flatten(), nn.Linear(320, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


def _resnet(nn: Any) -> Any:
    sections = [_block(nn, 16, 16, 1), _block(nn, 16, 32, 2), _block(nn, 32, 64, 2)]
    first = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*first, *sections, *last)


def _block(nn: Any, before: int, filters: int, stride: int) -> Any:
    """Batch norm, then two convolutions beside the way around them."""

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.relu = nn.BatchNorm2d(before), nn.ReLU()
            self.first = nn.Conv2d(before, filters, 3, stride, padding=1)
            self.second = nn.Conv2d(filters, filters, 3, padding=1)
            self.around = nn.Conv2d(before, filters, 2, 2) if stride > 1 else nn.Identity()

        def forward(self, x: Any) -> Any:
            x = self.norm(x)
            return self.relu(self.second(self.relu(self.first(x))) + self.around(x))

    return Block()


_MODELS: dict[str, Callable[[Any], Any]] = {"ResNet-8": _resnet, "MNIST CNN": _digits}
