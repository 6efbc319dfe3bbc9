"""Overlap: sums over workers beside the backward pass, as an account and as it was on this host.

With variables on the host a gradient leaves the device when its layer's backward pass ends, the
latest layer first. The hosts sum one gradient after the other, in that order, and the new weights
go back; meanwhile earlier layers still compute. What the device waits for after its backward pass
is exposed. The account knows lengths alone, so its numbers are worth what theirs are; the update on
the host has none.

Source    Graphcore's TensorFlow documents, distributed training (streams of gradients, order).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fpsim.records.evidence import Evidence, Fact
from ipu.plan.cycles import HOST

__all__ = [
    "BETWEEN", "HOP_BETWEEN", "Layer", "Overlap", "Span", "StepTimes", "account", "layer_of",
]

BETWEEN = Fact(
    12.5e9, Evidence.ASSUMED, "bytes per second between two machines, 100 Gb/s; declared"
)
HOP_BETWEEN = Fact(10e-6, Evidence.ASSUMED, "seconds of a hop between two machines; declared")


class Layer(NamedTuple):
    """Seconds of a layer: its backward pass, its gradient's way out, its sum, its weights' back."""

    backward: float
    out: float
    sum: float
    back: float


def layer_of(backward: float, out: int, back: int, workers: int) -> Layer:
    """A layer whose gradient is summed by a flat ring of workers.

    Units     seconds of the backward pass; bytes of gradient and weights.

    >>> layer_of(1.0, 20_000_000_000, 20_000_000_000, workers=1)
    Layer(backward=1.0, out=1.0, sum=0.0, back=1.0)
    """
    share, rounds = 2 * (workers - 1) / workers, 2 * (workers - 1)
    return Layer(
        backward, out / HOST.value, share * out / BETWEEN.value + rounds * HOP_BETWEEN.value,
        back / HOST.value,
    )


class Span(NamedTuple):
    """From when to when, in seconds from the start of the backward pass, or of a launch."""

    start: float
    end: float


class Overlap(NamedTuple):
    """Backward passes, transfers and sums of a step, in the order of the backward pass."""

    backward: tuple[Span, ...]
    out: tuple[Span, ...]
    sums: tuple[Span, ...]
    back: tuple[Span, ...]

    @property
    def computed(self) -> float:
        """The end of the backward pass."""
        return self.backward[-1].end

    @property
    def exposed(self) -> float:
        """Seconds after the backward pass until the last weights are back."""
        return max(0.0, self.back[-1].end - self.computed)

    @property
    def communicated(self) -> float:
        """Seconds of all transfers and sums, one after the other."""
        spans = (*self.out, *self.sums, *self.back)
        return sum(span.end - span.start for span in spans)

    @property
    def hidden(self) -> float:
        """Seconds of them that take no time beside the rest."""
        return self.communicated - self.exposed


def account(layers: Sequence[Layer]) -> Overlap:
    """The spans of a step; layers in the order of the backward pass, the latest first.

    The device, the way out, the sums and the way back are four resources: each does one thing at a
    time, in this order of the layers.

    Raises    ValueError for no layer, and for a negative length.

    >>> done = account([Layer(2.0, 0.5, 1.0, 0.5), Layer(2.0, 0.5, 1.0, 0.5)])
    >>> done.computed, done.exposed, done.hidden
    (4.0, 2.0, 2.0)
    """
    if not layers:
        raise ValueError("layers=() has no backward pass; give one layer or more")
    if any(seconds < 0 for layer in layers for seconds in layer):
        raise ValueError("layers have seconds below 0; give 0 or more for each length")
    ready = [0.0] * len(layers)
    columns = []
    for resource in range(4):
        spans, free = [], 0.0
        for i, layer in enumerate(layers):
            start = max(free, ready[i])
            free = ready[i] = start + layer[resource]
            spans.append(Span(start, free))
        columns.append(tuple(spans))
    return Overlap(*columns)


class StepTimes:
    """When a step's gradients left the device and when they were summed, as this host did it.

    Seconds from the start of the launch; it is a simulation's time and no machine's. Threads may
    note at the same time.

    left        when each gradient had been computed, in order.
    sums        of each sum over the workers, in order.
    computed    the end of the launch; None while it runs.

    >>> times = StepTimes()
    >>> times.leave("dense/kernel")
    >>> with times.summing("dense/kernel"):
    ...     times.end()
    >>> times.overlap > 0, list(times.left)
    (True, ['dense/kernel'])
    """

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self.left: dict[str, float] = {}
        self.sums: dict[str, Span] = {}
        self.computed: float | None = None

    def _now(self) -> float:
        return time.perf_counter() - self._start

    def leave(self, name: str) -> None:
        """A gradient has been computed."""
        self.left[name] = self._now()

    @contextmanager
    def summing(self, name: str) -> Iterator[None]:
        """A block around the sum of a gradient over the workers."""
        start = self._now()
        yield
        self.sums[name] = Span(start, self._now())

    def end(self) -> None:
        """The device has computed everything."""
        self.computed = self._now()

    @property
    def overlap(self) -> float:
        """Seconds of the sums in which the device still computed."""
        end = self.computed
        if end is None:
            return 0.0
        return sum(max(0.0, min(span.end, end) - span.start) for span in self.sums.values())

    def summary(self) -> dict[str, Any]:
        """All of it, for a report."""
        return {
            "left": dict(self.left), "sums": {n: list(span) for n, span in self.sums.items()},
            "computed": self.computed, "overlap": self.overlap,
        }
