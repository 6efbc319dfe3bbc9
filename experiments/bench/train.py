"""How fast a network trains on the simulated machine, beside what its products would allow.

A step is forward, both gradients and the update, in binary16 with stochastic rounding. The rate of
products, as `gemm` measures it, predicts its images per second from the multiply-adds that the
ledger counts as asked for; both are timed in turn, as is torch in binary32 where it is installed.

Memory is what a step adds to the resident memory of a fresh process (`memory`), over what liveness
asks for: values saved for the backward pass, parameters and slots, each in its own format.
"""

from __future__ import annotations

import statistics
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
from ipu.experiments.bench.memory import of_step
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

__all__ = ["SIZES", "cases", "step_of"]

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
    range     least and largest ratio of a round.
    memory    bytes that a step adds to a process, over the bytes that are alive by the ledger; None
              where the system does not tell.
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
    peak_bytes: int | None
    live_bytes: int
    memory: float | None
    peer: str | None
    peer_images_per_s: float | None
    rounds: int
    range: tuple[float, float]

    def fields(self) -> dict[str, object]:
        """What is written."""
        return asdict(self)

    def __str__(self) -> str:
        spent = ", ".join(f"{phase} {share:.0%}" for phase, share in self.shares.items())
        peer = f"; {self.peer}: {self.peer_images_per_s:.0f}" if self.peer else ""
        return (
            f"{self.network:10} {self.preset:7}{self.images_per_s:8.1f} images/s, "
            f"{self.ratio:4.0%} of {self.predicted:.1f} ({self.gmac_per_s:.2f} GMAC/s); {spent}; "
            f"memory {'?' if self.memory is None else format(self.memory, '.1f')} x{peer}"
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
    rounds = in_turn(timed, size.repeats)
    seconds = [statistics.median(times) for times in rounds]
    predicted = [macs * size.n * other / rows**3 for other in rounds[1]]
    ratios = [long / own for long, own in zip(predicted, rounds[0], strict=True)]
    rate, images_per_s = rows**3 / seconds[1], size.n / seconds[0]
    peak, live = of_step(name, preset, size.n), _live(trainer, images, labels)
    return TimedTraining(
        "train", name, preset, BINARY16.name, "SR", size.n, get_threads(), images_per_s, macs,
        rate / 1e9, rate / macs, images_per_s * macs / rate, shares(step, trainer.device),
        peak, live, peak and peak / live, peer and peer.name, size.n / seconds[2] if peer else None,
        size.repeats, (min(ratios), max(ratios)),
    )  # fmt: skip


def step_of(name: str, preset: str, n: int) -> Call:
    """A training step of n images, as it is measured."""
    trainer = _trainer(NETWORKS[name], preset)
    keep_freed_memory()
    warnings.simplefilter("ignore", RuntimeWarning)  # as in `_warm`
    return partial(trainer.step, *_batch(NETWORKS[name], n))


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


def _live(trainer: Trainer, images: NDArray[Any], labels: NDArray[Any]) -> int:
    """Bytes that liveness asks for."""
    kept = [v.array for v in trainer.variables.values()]
    kept += [slot for slots in trainer.slots.values() for slot in slots]
    with training():
        saved = saved_bytes(trainer.loss(images, labels))
    return saved + sum(a.nbytes for a in kept)
