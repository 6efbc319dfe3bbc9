"""How fast a network trains on the simulated machine, beside what its products would allow.

A step is forward, both gradients and the update, in binary16 with stochastic rounding. The rate of
products, as `gemm` measures it, predicts its images per second from the multiply-adds that the
ledger counts as asked for; both are timed in turn, as is torch in binary32 where it is installed.

A transformer written in PyTorch runs through its front end, where torch is installed.

Memory is what a step adds to the resident memory of a fresh process (`memory`), over what liveness
asks for: values saved for the backward pass, parameters and slots, each in its own format.
"""

from __future__ import annotations

import importlib
import importlib.util
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
from ipu.experiments.bench.steps.memory import of_step
from ipu.experiments.bench.steps.phases import shares
from ipu.experiments.bench.steps.torch_networks import IMAGES, peers, training_step
from ipu.experiments.bench.timing import Call, Size, Timed, in_turn
from ipu.experiments.bench.timing import seconds as clock
from ipu.experiments.training.networks import mnist, resnet
from ipu.learn.loss_scale import LEARNING_RATE, StaticLossScale
from ipu.learn.mode import training as taping
from ipu.learn.optim import SGD
from ipu.learn.policy import Policy
from ipu.learn.tensor import saved_bytes
from ipu.learn.train import Model, Trainer
from ipu.machine import FpCtl
from ipu.machine.device import Device
from ipu.ops.heap import keep_freed_memory

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
              where the system does not tell, and through PyTorch, whose tape is not ours.
    peers     images per second of every tool that is installed; `peer` is torch.
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
    live_bytes: int | None
    memory: float | None
    peer: str | None
    peer_images_per_s: float | None
    peers: dict[str, float]
    rounds: int
    range: tuple[float, float]
    share: float | None = None

    def fields(self) -> dict[str, object]:
        """What is written."""
        return asdict(self)

    def __str__(self) -> str:
        spent = ", ".join(f"{phase} {share:.0%}" for phase, share in self.shares.items())
        peers = "".join(f"; {name}: {rate:.4g}" for name, rate in self.peers.items())
        return (
            f"{self.network:11} {self.preset:7}{self.images_per_s:8.1f} images/s, "
            f"{self.ratio:4.0%} of {self.predicted:.1f} ({self.gmac_per_s:.2f} GMAC/s); {spent}; "
            f"memory {'?' if self.memory is None else format(self.memory, '.1f')} x{peers}"
        )


class Training(NamedTuple):
    """A step that is measured, and the device that computes it.

    memory    peak and live bytes of a step, where they are told.
    """

    images: NDArray[Any]
    labels: NDArray[Any]
    step: Call
    device: Device
    memory: Callable[[], tuple[int | None, int]] | None


def cases(size: Size, quick: bool) -> Iterator[Callable[[], TimedTraining]]:
    """Each network with the sums of the matrix units exact, and in their window."""
    names = [*NETWORKS, *(IMAGES if importlib.util.find_spec("torch") else {})]
    for network in names[: 1 if quick else None]:
        for preset in ("exact", "window"):
            yield partial(_measure, network, preset, size, _ROWS[quick])


def _measure(name: str, preset: str, size: Size, rows: int) -> TimedTraining:
    training = (_on_the_machine if name in NETWORKS else _in_torch)(name, preset, size.n)
    unit = "AMP_F16_F32" + ("" if preset == "window" else f".{preset}")
    product = gemm.call(gemm.Row(preset, BINARY16, unit=unit), rows)
    others = peers(name, training.images, training.labels)
    calls: list[Call] = [training.step, product, *(peer.call for peer in others)]
    keep_freed_memory()
    _warm(calls)
    macs = _macs(training) // size.n
    timed: list[Timed] = [(call, clock) for call in calls]
    turns = in_turn(timed, size.repeats)
    rounds = turns.seconds
    of_step, of_product, *of_peers = (statistics.median(times) for times in rounds)
    predicted = [macs * size.n * other / rows**3 for other in rounds[1]]
    ratios = [long / of_step for long, of_step in zip(predicted, rounds[0], strict=True)]
    rate, images_per_s = rows**3 / of_product, size.n / of_step
    peak, live = training.memory() if training.memory else (None, None)
    rates = {peer.name: size.n / time for peer, time in zip(others, of_peers, strict=True)}
    peer = next(iter(rates), None)
    return TimedTraining(
        "train", name, preset, BINARY16.name, "SR", size.n, get_threads(), images_per_s, macs,
        rate / 1e9, rate / macs, images_per_s * macs / rate,
        shares(training.step, training.device), peak, live,
        peak / live if peak and live else None, peer, rates[peer] if peer else None, rates,
        size.repeats, (min(ratios), max(ratios)), turns.share,
    )


def _on_the_machine(name: str, preset: str, n: int) -> Training:
    network = NETWORKS[name]
    trainer = _trainer(network, preset)
    images, labels = _batch(network.image, n)

    def memory() -> tuple[int | None, int]:
        return of_step(name, preset, n), _live(trainer, images, labels)

    step = partial(trainer.step, images, labels)
    return Training(images, labels, step, trainer.device, memory)


def _in_torch(name: str, preset: str, n: int) -> Training:
    """A network in PyTorch through its front end."""
    torch: Any = importlib.import_module("torch")
    front: Any = importlib.import_module("fpsim.torch")
    images, labels = _batch(IMAGES[name], n)
    session = front.machine("fp16", sr=True, preset=preset)
    plain = training_step(torch, name, images, labels)

    def step() -> None:
        with session:
            plain()

    return Training(images, labels, step, session.device, None)


def step_of(name: str, preset: str, n: int) -> Call:
    """A training step of n images, as it is measured."""
    trainer = _trainer(NETWORKS[name], preset)
    keep_freed_memory()
    warnings.simplefilter("ignore", RuntimeWarning)  # as in `_warm`
    return partial(trainer.step, *_batch(NETWORKS[name].image, n))


def _trainer(network: Network, preset: str) -> Trainer:
    """As the tutorial trains: momentum, and a loss scale that the learning rate undoes."""
    return Trainer(
        network.model, SGD(0.01, momentum=0.9), policy=Policy(BINARY16, BINARY16),
        control=FpCtl(esr=True), loss_scale=StaticLossScale(256.0, LEARNING_RATE), preset=preset,
    )


def _batch(image: tuple[int, int, int], n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(n)
    return rng.standard_normal((n, *image), np.float32), rng.integers(0, 10, n)


def _warm(calls: list[Call]) -> None:
    """Compile; the tutorial's rate over its loss scale is subnormal, which the optimiser tells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for call in calls:
            call()


def _macs(training: Training) -> int:
    training.device.ledger.clear()
    training.step()
    return training.device.ledger.useful


def _live(trainer: Trainer, images: NDArray[Any], labels: NDArray[Any]) -> int:
    """Bytes that liveness asks for."""
    arrays = [v.array for v in trainer.variables.values()]
    arrays += [slot for slots in trainer.slots.values() for slot in slots]
    with taping():
        saved = saved_bytes(trainer.loss(images, labels))
    return saved + sum(a.storage_bytes for a in arrays)
