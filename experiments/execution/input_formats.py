"""Images sent as bytes, halves or singles, normalised by the host or by the device.

The documents advise to send small formats and to normalise on the device. Bytes that are sent are
counted by the queue; seconds are bytes over a declared rate. What the advice does to the numbers is
enumerated: all 256 values of a pixel, for the channels of two data sets, against the host's
normalisation in binary64, rounded once to FP16. Last, a training sees each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim import BINARY16, BINARY32, Array
from ipu.experiments.lab.judged import ACCURACY, declared, judged_text, opening
from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.processes import in_processes
from ipu.experiments.lab.result import Collected, Result, Row, UnitUsed
from ipu.experiments.training import digits
from ipu.feed.counters import record_launches
from ipu.feed.infeed import Infeed
from ipu.feed.loops import repeat
from ipu.feed.throughput import benchmark
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16
from ipu.learn.train import Trainer
from ipu.machine import Device
from ipu.run.endpoints import Outcome
from ipu.run.judging import Judged, judge

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Do images that are sent as bytes train as well as images that are sent in FP32?"
BUDGET = 60
DEFAULT = False

BATCH, RATE, MOMENTUM = 32, 0.01, 0.9
#: A batch of the documents' size: 16 images of 224 × 224 × 3.
IMAGES = (16, 224, 224, 3)
#: Bytes a second between host and device.
LINK = 20e9
DECLARED = UnitUsed("host link = 2e+10 bytes/s", "ASSUMED", "declared cost model")

Pixels = NDArray[np.uint8]


class PixelChannel(NamedTuple):
    """Mean and standard deviation of a channel, of pixels in 0 … 1."""

    name: str
    mean: float
    deviation: float


#: As PyTorch's examples and torchvision's models normalise; the last for the digits here.
CHANNELS = (
    PixelChannel("MNIST", 0.1307, 0.3081), PixelChannel("ImageNet red", 0.485, 0.229),
    PixelChannel("ImageNet green", 0.456, 0.224), PixelChannel("ImageNet blue", 0.406, 0.225),
    PixelChannel("digits", 0.287, 0.354),
)
DIGITS = CHANNELS[-1]


class PixelTransfer(NamedTuple):
    """What the host sends for pixels, and what the device turns it into: FP16."""

    name: str
    sends: Callable[[Pixels, PixelChannel], NDArray[Any]]
    receives: Callable[[Device, NDArray[Any], PixelChannel], Array]


def normalised(pixels: Pixels, channel: PixelChannel) -> NDArray[np.float64]:
    """On the host, in binary64."""
    return (pixels / 255.0 - channel.mean) / channel.deviation


def _take(device: Device, values: NDArray[Any], channel: PixelChannel) -> Array:
    """Cast to FP16 on the device, where it is not FP16 already."""
    fmt = BINARY32 if values.dtype == np.float32 else BINARY16
    return device.cast(device.from_host(values, fmt), BINARY16)


def _normalise_in(fmt: Any) -> Callable[[Device, NDArray[Any], PixelChannel], Array]:
    def normalise(device: Device, pixels: NDArray[Any], channel: PixelChannel) -> Array:
        """(x - 255 mean) · (1 / (255 deviation)), each operation and constant rounded."""
        x = device.from_host(pixels, fmt)  # exact: 0 … 255
        centred = device.subtract(x, device.from_host(255 * channel.mean, fmt))
        scale = device.from_host(1 / (255 * channel.deviation), fmt)
        return device.cast(device.multiply(centred, scale), BINARY16)

    return normalise


def _bytes(pixels: Pixels, channel: PixelChannel) -> Pixels:
    return pixels


WAYS = (
    PixelTransfer("FP32, host", lambda x, c: normalised(x, c).astype(np.float32), _take),
    PixelTransfer("FP16, host", lambda x, c: normalised(x, c).astype(np.float16), _take),
    PixelTransfer("uint8, device in FP32", _bytes, _normalise_in(BINARY32)),
    PixelTransfer("uint8, device in FP16", _bytes, _normalise_in(BINARY16)),
)
REFERENCE, SMALLEST = WAYS[0].name, WAYS[-1].name


class TransferTraining(NamedTuple):
    """One training, with the way by its number."""

    way: int
    seed: int
    epochs: int


def run(quick: bool, seed: int) -> Result:
    seeds, epochs = (3, 2) if quick else (12, 3)
    collected = Collected()
    collected.add(list(chain(_pixels(), _transfers())), (DECLARED,))
    jobs = [
        TransferTraining(i, s, epochs)
        for i in range(len(WAYS)) for s in range(seed, seed + seeds)
    ]
    outcomes = in_processes(_train, jobs, "trainings")
    for job, (row, units) in zip(jobs, outcomes, strict=True):
        collected.add([row], units, part="training", way=WAYS[job.way].name, seed=job.seed)
    parameters = {"network": "64-64-10 dense, relu", "policy": str(FP16), "batch": BATCH,
                  "epochs": epochs, "seeds": seeds, "declared": declared(seeds)}
    local = list(_throughput(8 if quick else 64))
    return Result(collected.rows, _answer(collected.rows), "p=f16,c=f16,rounding=RNE", parameters,
                  collected.units, local)


def _pixels() -> Iterator[Row]:
    """All values of a pixel by way and channel, against one rounding of the exact quotient."""
    pixels = np.arange(256, dtype=np.uint8)
    device = Device()
    for channel in CHANNELS:
        once = device.from_host(normalised(pixels, channel), BINARY16)
        expected = once.values.astype(np.float64)
        for way in WAYS:
            there = way.receives(device, way.sends(pixels, channel), channel)
            error = np.abs(there.values.astype(np.float64) - expected)
            yield {"part": "pixels", "way": way.name, "channel": channel.name,
                   "different": int(np.count_nonzero(there.codes() != once.codes())),
                   "largest": float(error.max())}


def _transfers() -> Iterator[Row]:
    """Bytes of a batch as the queue counts them, and seconds at the declared rate."""
    images = np.zeros(IMAGES, np.uint8)
    for way in WAYS:
        with (
            Infeed([way.sends(images, DIGITS)]) as infeed,
            record_launches() as record,
        ):
            repeat(1, lambda x: None, infeed=infeed)
        sent = record.counters.bytes_in
        yield {"part": "transfer", "way": way.name, "bytes": sent, "seconds": sent / LINK}


def _train(job: TransferTraining) -> tuple[Row, tuple[UnitUsed, ...]]:
    """Loss of the last epoch, accuracy on the test digits, and bytes sent."""
    way, seed = WAYS[job.way], job.seed
    trainer = Trainer(digits.network, SGD(RATE, MOMENTUM), policy=FP16, seed=seed)
    data = digits.load()
    pixels = (data.images * 240).astype(np.uint8)  # exact: sixteenths
    learn, test = data.split(seed)
    losses: list[float] = []

    def batches() -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        for epoch in count(1):
            for rows in digits.batches(learn, BATCH, seed, epoch):
                yield way.sends(pixels[rows], DIGITS), data.labels[rows]

    def body(images: NDArray[Any], labels: NDArray[np.int64]) -> None:
        losses.append(trainer.step(way.receives(trainer.device, images, DIGITS), labels))

    steps = len(learn) // BATCH
    with Infeed(batches) as infeed, record_launches() as record:
        repeat(job.epochs * steps, body, infeed=infeed)
    shown = way.receives(trainer.device, way.sends(pixels[test], DIGITS), DIGITS)
    row: Row = {
        "loss": float(np.mean(losses[-steps:])),
        "accuracy": trainer.accuracy(shown, data.labels[test]),
        "bytes": record.counters.bytes_in, "launches": record.counters.launches,
    }
    return row, units_of(trainer.device)


def _throughput(elements: int) -> Iterator[Row]:
    """What this machine's queue delivers: the pixels are ready, so it copies."""
    images = np.zeros(IMAGES, np.uint8)
    for way in WAYS[:3]:
        element = way.sends(images, DIGITS)
        with Infeed([element] * (elements + 1)) as infeed:
            infeed.dequeue()  # the thread has started
            (epoch,) = benchmark(infeed, 1, elements).epochs
        yield {"part": "throughput", "sends": str(element.dtype), "GB/s": epoch.bandwidth,
               "elements/s": epoch.elements_per_second}


def difference(rows: list[Row]) -> Judged:
    """Bytes that are normalised in FP16 beside FP32, by the test accuracy of paired trainings."""
    small, single = (
        [Outcome(score=100 * float(str(row["accuracy"])))
         for row in Result(rows, "", "").select(part="training", way=way)]
        for way in (SMALLEST, REFERENCE)
    )
    return judge(ACCURACY, small, single, reference=REFERENCE)


def _answer(rows: list[Row]) -> str:
    table = Result(rows, "", "")
    sent = {way.name: table.select(part="transfer", way=way.name)[0] for way in WAYS}
    different = {way.name: table.column("different", part="pixels", way=way.name) for way in WAYS}
    largest = table.column("largest", part="pixels", way=SMALLEST).max()
    judged = difference(rows)
    microseconds = [1e6 * float(str(sent[name]["seconds"])) for name in (SMALLEST, REFERENCE)]
    return (
        f"{opening(judged)} {judged_text(SMALLEST, judged)}. A batch of "
        f"16 × 224 × 224 × 3 takes {microseconds[0]:.0f} µs as bytes instead of "
        f"{microseconds[1]:.0f} µs in FP32. Normalised by the device in FP16, up to "
        f"{different[SMALLEST].max()} of 256 pixel values differ from one rounding, by up to "
        f"{largest:.4f} standard deviations; in FP32 with a cast after it, up to "
        f"{different[WAYS[2].name].max()}; by the host, sent in FP32, up to "
        f"{different[REFERENCE].max()}."
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (sent, pixels, accuracy) = new_figure(13, 4.2, mosaic="ABC")
    _plot_bars(sent, result, "transfer", "seconds", 1e6)
    sent.set(title="16 × 224 × 224 × 3", xlabel=f"µs at {LINK / 1e9:.0f} GB/s (assumed)")
    _plot_bars(pixels, result, "pixels", "different", 1.0)
    pixels.set(title="Values that differ", xlabel="of 256, mean of the channels")
    _plot_accuracy(accuracy, result)
    return figure


def _plot_bars(axes: Axes, result: Result, part: str, column: str, scale: float) -> None:
    from ipu.run.pages.drawing import BLUE

    names = [way.name for way in WAYS][::-1]
    values = [scale * result.column(column, part=part, way=name).mean() for name in names]
    bars = axes.barh(names, values, color=BLUE, height=0.5)
    axes.bar_label(bars, fmt="%.3g", padding=3)
    axes.set_xlim(0, 1.18 * max(values))


def _plot_accuracy(axes: Axes, result: Result) -> None:
    from ipu.run.pages.drawing import BLUE, THEORY

    names = [way.name for way in WAYS][::-1]
    for i, name in enumerate(names):
        accuracy = 100 * result.column("accuracy", part="training", way=name)
        axes.plot(accuracy, np.full(len(accuracy), i), "o", color=BLUE, alpha=0.45)
        axes.plot([accuracy.mean()], [i], "|", color="black", markersize=18)
    mean = 100 * result.column("accuracy", part="training", way=REFERENCE).mean()
    axes.axvline(mean, **THEORY)
    axes.set_yticks(range(len(names)), names)
    axes.set(title="Training, a dot a seed", xlabel="test accuracy in %",
             ylim=(-0.6, len(names) - 0.4))
