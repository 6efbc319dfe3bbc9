"""How fast a data set or an infeed delivers, with no device behind it.

Source    TensorFlow user guide §6.10; graphcore/tensorflow dataset_benchmark.py: the fields of its
          JSON, all of them floats, with bandwidth in decimal GB/s.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from ipu.feed.infeed import EndOfDataError, Infeed
from ipu.feed.source import Source

__all__ = ["Benchmark", "Epoch", "benchmark"]

_GIGA = 1e9


@dataclass(frozen=True)
class Epoch:
    """One epoch, in elements, bytes, seconds and 10^9 bytes a second."""

    elements_processed: float
    total_bytes_processed: float
    time_elapsed: float
    elements_per_second: float
    bandwidth: float


@dataclass(frozen=True)
class Benchmark:
    """The epochs of a benchmark.

    >>> result = benchmark([1.0] * 6, epochs=2, elements_per_epoch=3)
    >>> isinstance(result, Benchmark), len(result.epochs), result.to_json()[:36]
    (True, 2, '{"epochs": [{"elements_processed": 3')
    """

    epochs: tuple[Epoch, ...]

    def to_json(self) -> str:
        """{"epochs": [{"elements_processed": …, …}, …]}"""
        return json.dumps({"epochs": [asdict(epoch) for epoch in self.epochs]})


def benchmark(data: Any, epochs: int, elements_per_epoch: int) -> Benchmark:
    """Take elements as fast as they come.

    data      an Infeed, or a data set, which is then read in this thread, copies included.
    Raises    EndOfDataError where it has fewer than epochs × elements_per_epoch elements.

    >>> result = benchmark([1.0] * 6, epochs=2, elements_per_epoch=3)
    >>> [(epoch.elements_processed, epoch.total_bytes_processed) for epoch in result.epochs]
    [(3.0, 24.0), (3.0, 24.0)]
    """
    for name, n in (("epochs", epochs), ("elements_per_epoch", elements_per_epoch)):
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ValueError(f"{name}={n!r} is not a count; use 1 or more")
    if isinstance(data, Infeed):
        return _measured(lambda: data.take()[1], epochs, elements_per_epoch)
    source = Source(data)
    with closing(source.elements(source.position)) as elements:

        def take() -> int:
            element = next(elements, None)
            if element is None:
                raise EndOfDataError(
                    f"the data set has fewer elements than epochs={epochs} times "
                    f"elements_per_epoch={elements_per_epoch}; use a longer one or fewer"
                )
            return element.nbytes

        return _measured(take, epochs, elements_per_epoch)


def _measured(take: Callable[[], int], epochs: int, elements: int) -> Benchmark:
    return Benchmark(tuple(_epoch(take, elements) for _ in range(epochs)))


def _epoch(take: Callable[[], int], elements: int) -> Epoch:
    started = time.perf_counter_ns()
    nbytes = 0
    for _ in range(elements):
        nbytes += take()
    seconds = max(time.perf_counter_ns() - started, 1) / _GIGA
    return Epoch(
        float(elements), float(nbytes), seconds, elements / seconds, nbytes / _GIGA / seconds
    )
