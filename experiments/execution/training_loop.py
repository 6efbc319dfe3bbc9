"""What a loop on the device saves, and how far the host should read ahead.

Launches: one training of the digits network, driven from the host batch by batch, in executions of
ten batches, and in one loop. It is the same training bit for bit; what differs is how often the
host calls the device.

Prefetch: the host takes its time for every batch, the device for every step. A step waits where the
next batch is not ready. The model is a recurrence over a bounded buffer; the same patterns are then
measured with a real infeed between two threads that sleep, in machine.csv, since times differ from
run to run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import Result, Row, UnitUsed
from ipu.experiments.lab.variants import Variant
from ipu.experiments.training import digits
from ipu.feed.counters import launch, record_launches
from ipu.feed.infeed import Infeed
from ipu.feed.loops import repeat
from ipu.feed.outfeed import Outfeed
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16
from ipu.learn.train import Trainer
from ipu.machine import FpCtl
from ipu.run.verdict import Effect, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Are three batches that are read ahead, as advised, enough to hide an uneven host?"
BUDGET = 40
DEFAULT = False

BATCH, EXECUTION, RATE = 32, 10, 0.1
VARIANT = Variant("FP16 + SR", FP16, stochastic=True)

#: Seconds of the host for batch i, as multiples of the device's seconds for a step.
PATTERNS: dict[str, Callable[[int], float]] = {
    "even, 0.9 of a step": lambda i: 0.9,
    "every 8th takes 3 steps, 0.9 on average": lambda i: 3.0 if i % 8 == 7 else 0.6,
    "every 16th takes 6.4 steps, 0.9 on average": lambda i: 6.4 if i % 16 == 15 else 8 / 15,
    "even, 1.2 of a step": lambda i: 1.2,
}
#: Hosts that are fast enough on average; the last one stalls longest.
FAST = tuple(PATTERNS)[:3]
DEPTHS = (1, 2, 3, 4, 6, 8)
STEPS = 1600
#: A device that waits less than this share of its time is not held up.
HIDDEN = 0.01
#: What the documents say about the depth.
DOCUMENTED = 3
DECLARED = UnitUsed(
    "host time of a batch, as multiples of a step", "ASSUMED", "patterns of this experiment"
)


def run(quick: bool, seed: int) -> Result:
    batches = 20 if quick else 200
    rows: list[Row] = []
    for name, drive in WAYS.items():
        row, units = _train(name, drive, batches, seed)
        rows.append(row)
    rows += [
        {"part": "prefetch", "pattern": pattern, "depth": depth,
         "waiting": waiting_share(PATTERNS[pattern], depth, STEPS)}
        for pattern in PATTERNS for depth in DEPTHS
    ]
    shown = [(p, d) for p in PATTERNS for d in ((1, 3) if quick else DEPTHS)]
    step, steps = (0.002, 32) if quick else (0.005, 128)
    local: list[Row] = [
        {"part": "measured", "pattern": pattern, "depth": depth, "step_seconds": step,
         "waiting": measured_share(PATTERNS[pattern], depth, steps, step)}
        for pattern, depth in progress(shown, "waiting")
    ]
    parameters = {"network": "64-64-10 dense, relu", "batch": BATCH, "batches": batches,
                  "steps of the model": STEPS, "seed": seed}
    return Result(rows, _answer(rows, local), str(VARIANT), parameters, (*units, DECLARED), local)


# Launches ---------------------------------------------------------------------------------------


def _drive_by_call(trainer: Trainer, infeed: Infeed, outfeed: Outfeed, batches: int) -> None:
    def step() -> None:
        outfeed.enqueue(trainer.step(*infeed.dequeue()))

    for _ in range(batches):
        launch(step)


def _drive_by_execution(trainer: Trainer, infeed: Infeed, outfeed: Outfeed, batches: int) -> None:
    for _ in range(0, batches, EXECUTION):
        _loop(trainer, infeed, outfeed, EXECUTION)


def _loop(trainer: Trainer, infeed: Infeed, outfeed: Outfeed, batches: int) -> None:
    def body(images: np.ndarray, labels: np.ndarray) -> None:
        outfeed.enqueue(trainer.step(images, labels))

    repeat(batches, body, infeed=infeed)


Drive = Callable[[Trainer, Infeed, Outfeed, int], None]

WAYS: dict[str, Drive] = {
    "a call for each batch": _drive_by_call,
    f"executions of {EXECUTION} batches": _drive_by_execution,
    "one loop": _loop,
}


def _train(name: str, drive: Drive, batches: int, seed: int) -> tuple[Row, tuple[UnitUsed, ...]]:
    """One training: what its launches did, and the digests of weights and losses."""
    trainer = Trainer(digits.network, SGD(RATE), policy=FP16, control=FpCtl(esr=True), seed=seed)
    with (
        Infeed(lambda: _batches(seed)) as infeed,
        Outfeed() as outfeed,
        record_launches() as record,
    ):
        drive(trainer, infeed, outfeed, batches)
        losses = outfeed.dequeue()
    weights = [variable.array.codes() for variable in trainer.variables.values()]
    row: Row = {
        "part": "launches", "way": name, **vars(record.counters),
        "loss": float(losses[-EXECUTION:].mean()),
        "digest": digest(weights), "digest_losses": digest([losses]),
    }
    return row, units_of(trainer.device)


def _batches(seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches without end, as binary16 values and labels."""
    data = digits.load()
    images = data.images.astype(np.float16)  # exact: sixteenths
    learn, _ = data.split(seed)
    for epoch in count(1):
        for samples in digits.batches(learn, BATCH, seed, epoch):
            yield images[samples], data.labels[samples]


def digest(arrays: list[np.ndarray]) -> str:
    """Twelve digits that differ where a bit of the arrays does; a letter keeps it a word."""
    hashed = hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in arrays))
    return f"d{hashed.hexdigest()[:12]}"


# Prefetch ---------------------------------------------------------------------------------------


def waiting_share(host: Callable[[int], float], depth: int, steps: int) -> float:
    """Share of its time that the device waits, from the second step on, a step lasting 1.

    The host begins a batch once it has finished the one before and a place of the buffer is free;
    a place is free again when the device takes its batch.
    """
    taken: list[float] = []
    ready = finished = 0.0
    for i in range(steps):
        free = taken[i - depth] if i >= depth else 0.0
        ready = max(ready, free) + host(i)
        taken.append(max(ready, finished))
        finished = taken[i] + 1.0
    return 1 - (steps - 1) / (taken[-1] - taken[0])


def measured_share(host: Callable[[int], float], depth: int, steps: int, step: float) -> float:
    """The same with an infeed between two threads that sleep."""

    def data() -> Iterator[int]:
        for i in count():
            time.sleep(host(i) * step)
            yield i

    with Infeed(data, depth) as infeed, record_launches() as record:
        repeat(1, lambda i: time.sleep(step), infeed=infeed)
        started = time.perf_counter()
        repeat(steps - 1, lambda i: time.sleep(step), infeed=infeed)
        elapsed = time.perf_counter() - started
    return record.launches[-1].waits.infeed.seconds / elapsed


# Answer and figure ------------------------------------------------------------------------------


def _answer(rows: list[Row], local: list[Row]) -> str:
    table = Result(rows, "", "")
    launches = table.select(part="launches")
    waits = {
        (pattern, depth): float(table.column("waiting", pattern=pattern, depth=depth)[0])
        for pattern in PATTERNS
        for depth in DEPTHS
    }
    worst = Effect(max(waits[pattern, DOCUMENTED] for pattern in FAST))  # exact: a recurrence
    opening = verdict(
        worst.is_below(HIDDEN), worst.is_above(HIDDEN), needs="another pattern of the host"
    )
    enough = min(d for d in DEPTHS if waits[FAST[-1], d] < HIDDEN)
    same = len({(row["digest"], row["digest_losses"]) for row in launches}) == 1
    counts = ", ".join(f"{row['launches']} for {row['way']}" for row in launches)
    return (
        f"{opening} They hide a host that stalls for 3 steps: the device waits "
        f"{waits[FAST[1], 1]:.0%} of its time with one batch read ahead and "
        f"{waits[FAST[1], DOCUMENTED]:.0%} with three. Where it stalls for 6.4 steps, three leave "
        f"{waits[FAST[-1], DOCUMENTED]:.0%} and {enough} are enough; no depth helps a host that is "
        f"too slow on average. Launches of {launches[0]['elements_in']} batches: {counts}; the "
        f"trained weights are {'the same bits' if same else 'different bits'}. "
        f"{_measured(waits, local)}"
    )


def _measured(waits: Mapping[tuple[str, int], float], local: list[Row]) -> str:
    """Where threads that sleep differ from the model: at most, and at the advised depth."""
    apart = {
        (str(row["pattern"]), int(str(row["depth"]))): float(str(row["waiting"])) for row in local
    }
    worst = max(apart, key=lambda place: abs(apart[place] - waits[place]))
    held = [
        f"{pattern}: {apart[pattern, DOCUMENTED]:.0%}" for pattern in FAST
        if waits[pattern, DOCUMENTED] < HIDDEN <= apart[pattern, DOCUMENTED]
    ]
    text = (
        f"Measured with threads that sleep, the device waits {apart[worst]:.0%} of its time "
        f"instead of the model's {waits[worst]:.0%} where they differ most "
        f"({worst[0]}; {worst[1]} ahead)"
    )
    if held:
        text += f"; with {DOCUMENTED} ahead it waits where the model does not: {', '.join(held)}"
    return f"{text}."


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (calls, waits) = new_figure(11, 4.8, mosaic="AB", width_ratios=[2, 3])
    _plot_launches(calls, result)
    _plot_waiting(waits, result)
    return figure


def _plot_launches(axes: Axes, result: Result) -> None:
    from ipu.run.pages.drawing import BLUE

    ways = [str(row["way"]) for row in result.select(part="launches")]
    launches = result.column("launches", part="launches")
    bars = axes.barh(ways[::-1], launches[::-1], color=BLUE, height=0.5)
    axes.bar_label(bars, padding=4)
    batches = result.column("elements_in", part="launches")[0]
    axes.set(title=f"Launches of {batches} batches", xlabel="launches", xscale="log",
             xlim=(0.7, launches.max() * 2.5))


def _plot_waiting(axes: Axes, result: Result) -> None:
    from ipu.run.pages import drawing

    measured = Result(result.local, "", "")
    colors = (drawing.GREY, drawing.BLUE, drawing.ORANGE, drawing.RED)
    for pattern, color in zip(PATTERNS, colors, strict=True):
        where = {"pattern": pattern}
        axes.plot(result.column("depth", part="prefetch", **where),
                  100 * result.column("waiting", part="prefetch", **where),
                  color=color, linewidth=0.9, label=pattern)
        axes.plot(measured.column("depth", **where), 100 * measured.column("waiting", **where),
                  "o", color=color, markersize=5)
    drawing.count_ticks(axes.xaxis)
    axes.set(title="Waiting: model (lines), measured (dots)",
             xlabel="batches read ahead (prefetch)", ylabel="share of the device's time in %",
             ylim=(-1, None))
    axes.legend(fontsize=9, title="host time of a batch", title_fontsize=9)
