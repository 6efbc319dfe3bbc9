"""How fast a network trains on the simulated machine, beside what its products would allow.

A step is forward, both gradients and the update, in binary16 with stochastic rounding. The rate of
products, as `gemm` measures it, predicts its images per second from the multiply-adds that the
ledger counts as asked for; both are timed in turn, as is torch in binary32 where it is installed.

Memory is the most that one step allocates at a time, by tracemalloc, over what liveness asks for:
values saved for the backward pass, parameters and slots, each in its own format.
"""

from __future__ import annotations

import statistics
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.records.formats import BINARY16
from fpsim.state.threads import get_threads
from ipu.experiments.bench import gemm
from ipu.experiments.bench.phases import shares
from ipu.experiments.bench.timing import Call, Size, Timed, in_turn
from ipu.experiments.bench.timing import seconds as clock
from ipu.experiments.bench.torch_networks import torch_step
from ipu.experiments.training.networks import mnist, resnet
from ipu.learn.heap import keep_freed_memory
from ipu.learn.loss_scale import LEARNING_RATE, StaticLossScale
from ipu.learn.mode import training
from ipu.learn.optim import SGD
from ipu.learn.policy import Policy
from ipu.learn.tensor import saved_bytes
from ipu.learn.train import Model, Trainer
from ipu.machine import FpCtl

__all__ = ["SIZES", "cases"]

#: Images of a batch.
SIZES = Size(n=32, repeats=5), Size(n=4, repeats=1)

#: Rows and columns of the product whose rate is taken, as a rule and with --quick.
_ROWS = 512, 128


class Network(NamedTuple):
    """A model and the shape of its images."""

    model: Model
    image: tuple[int, int, int]


NETWORKS = {
    "ResNet-8": Network(partial(resnet, depth=8), (32, 32, 3)),
    "MNIST CNN": Network(mnist, (28, 28, 1)),
}


@dataclass(frozen=True)
class TimedTraining:
    """A network measured: `predicted` and `ratio` by the products' rate, shares by phase.

    macs      multiply-adds of a step, for each image.
    memory    most bytes of a step, over the bytes that are alive by the ledger.
    """

    topic: str
    network: str
    preset: str
    format: str
    rounding: str
    n: int
    threads: int
    images_per_s: float
    macs: int
    gmac_per_s: float
    predicted: float
    ratio: float
    shares: dict[str, float]
    peak_bytes: int
    live_bytes: int
    memory: float
    peer: str | None
    peer_images_per_s: float | None

    def fields(self) -> dict[str, object]:
        """What is written."""
        return asdict(self)

    def __str__(self) -> str:
        spent = ", ".join(f"{phase} {share:.0%}" for phase, share in self.shares.items())
        peer = f"; {self.peer}: {self.peer_images_per_s:.0f}" if self.peer else ""
        return (
            f"{self.network:10} {self.preset:7}{self.images_per_s:8.1f} images/s, "
            f"{self.ratio:4.0%} of {self.predicted:.1f} ({self.gmac_per_s:.2f} GMAC/s); {spent}; "
            f"memory {self.memory:.1f} x{peer}"
        )


def cases(size: Size, quick: bool) -> Iterator[Callable[[], TimedTraining]]:
    """Each network with the sums of the matrix units exact, and in their window."""
    for network in list(NETWORKS)[: 1 if quick else None]:
        for preset in ("exact", "window"):
            yield partial(_measure, network, preset, size, _ROWS[quick])


def _measure(name: str, preset: str, size: Size, rows: int) -> TimedTraining:
    network = NETWORKS[name]
    trainer = _trainer(network, preset)
    images, labels = _batch(network, size.n)
    step = partial(trainer.step, images, labels)
    unit = "AMP_F16_F32" + ("" if preset == "window" else f".{preset}")
    product = gemm.call(gemm.Row(preset, BINARY16, unit=unit), rows)
    peer = torch_step(name, images, labels)
    calls: list[Call] = [step, product, *([peer.call] if peer else [])]
    keep_freed_memory()
    _warm(calls)
    macs = _macs(trainer, step) // size.n
    timed: list[Timed] = [(call, clock) for call in calls]
    seconds = [statistics.median(times) for times in in_turn(timed, size.repeats)]
    rate, images_per_s = rows**3 / seconds[1], size.n / seconds[0]
    peak, live = _memory(trainer, images, labels)
    return TimedTraining(
        "train", name, preset, BINARY16.name, "SR", size.n, get_threads(), images_per_s, macs,
        rate / 1e9, rate / macs, images_per_s * macs / rate, shares(step, trainer.device),
        peak, live, peak / live, peer and peer.name, size.n / seconds[2] if peer else None,
    )  # fmt: skip


def _trainer(network: Network, preset: str) -> Trainer:
    """As the tutorial trains: momentum, and a loss scale that the learning rate undoes."""
    return Trainer(
        network.model, SGD(0.01, momentum=0.9), policy=Policy(BINARY16, BINARY16),
        control=FpCtl(esr=True), loss_scale=StaticLossScale(256.0, LEARNING_RATE), preset=preset,
    )  # fmt: skip


def _batch(network: Network, n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(n)
    return rng.standard_normal((n, *network.image), np.float32), rng.integers(0, 10, n)


def _warm(calls: list[Call]) -> None:
    """Compile; the tutorial's rate over its loss scale is subnormal, which the optimiser tells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for call in calls:
            call()


def _macs(trainer: Trainer, step: Call) -> int:
    trainer.device.ledger.clear()
    step()
    return trainer.device.ledger.useful


def _memory(trainer: Trainer, images: NDArray[Any], labels: NDArray[Any]) -> tuple[int, int]:
    """Most bytes of a step, and those that liveness asks for."""
    kept = [v.array for v in trainer.variables.values()]
    kept += [slot for slots in trainer.slots.values() for slot in slots]
    tracemalloc.start()
    trainer.step(images, labels)
    peak = tracemalloc.get_traced_memory()[1] + sum(a.values.nbytes for a in kept)
    tracemalloc.stop()
    with training():
        saved = saved_bytes(trainer.loss(images, labels))
    return peak, saved + sum(a.nbytes for a in kept)
