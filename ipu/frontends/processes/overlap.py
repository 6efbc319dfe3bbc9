"""Overlap: sums over workers beside the backward pass, as an account.

With variables on the host a gradient leaves the device when its layer's backward pass ends, the
latest layer first. The hosts sum one gradient after the other, in that order, and the new weights
go back; meanwhile earlier layers still compute. What the device waits for after its backward pass
is exposed. The account knows lengths alone, so its numbers are worth what theirs are; the update on
the host has none.

Source    Graphcore's TensorFlow documents, distributed training (streams of gradients, order).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Layer", "Overlap", "Span", "account"]


class Layer(NamedTuple):
    """Seconds of a layer: its backward pass, its gradient's way out, its sum, its weights' back."""

    backward: float
    out: float
    sum: float
    back: float


class Span(NamedTuple):
    """From when to when, in seconds from the start of the backward pass."""

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
