"""Results that leave a program while it runs: a session's graph gets each as it is computed.

The program runs in a thread of its own. A node starts it and returns at once; a node for each
result waits for that one, in the order in which they leave, so that one thread of TensorFlow waits
at most; a last node waits for the end. What follows on a result, as a sum over workers, goes on
beside the program.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.frontends.processes.overlap import Overlap, StepTimes, account, layer_of

__all__ = ["Outgoing", "departures", "streamed"]


class Outgoing:
    """Results of one launch on their way to the host.

    cycles    what the device has spent so far, by its declared model.
    names     of the results, by their numbers.

    >>> out = Outgoing(lambda: 7, {1: "gradient"})
    >>> out.begin(lambda: out.put(1, 0.5) or [2.0])
    >>> out.take(1), out.join(), out.cycles
    (0.5, [2.0], {1: 0})
    """

    def __init__(self, cycles: Callable[[], int], names: dict[int, str]) -> None:
        self._spent, self._before = cycles, cycles()
        self.names = names
        self._changed = threading.Condition()
        self._values: dict[int, Any] = {}
        self._results: list[Any] | None = None
        self._error: BaseException | None = None
        #: Cycles of the launch until each result left, and its bytes.
        self.cycles: dict[int, int] = {}
        self.bytes: dict[int, int] = {}
        #: Workers that sum the results.
        self.workers = 1
        self.times = StepTimes()

    def begin(self, program: Callable[[], list[Any]]) -> None:
        """Run the program in a thread of its own, which puts its results here."""

        def run() -> None:
            results: list[Any] | None = None
            error: BaseException | None = None
            try:
                results = program()
            except BaseException as caught:
                error = caught
            self.times.end()
            with self._changed:
                self._results, self._error = results, error
                self._changed.notify_all()

        threading.Thread(target=run, name="launch", daemon=True).start()

    def put(self, number: int, value: Any) -> None:
        """A result has been computed."""
        self.times.leave(self.names[number])
        with self._changed:
            self.cycles[number] = self._spent() - self._before
            self.bytes[number] = int(np.asarray(value).nbytes)
            self._values[number] = value
            self._changed.notify_all()

    def take(self, number: int) -> Any:
        """A result, as soon as it is there.

        Raises    the program's error, where it stopped before.
        """
        with self._changed:
            self._changed.wait_for(lambda: number in self._values or self._is_over)
            if number not in self._values:
                assert self._error is not None
                raise self._error
            return self._values[number]

    def join(self) -> list[Any]:
        """All that the program returns, at its end.

        Raises    its error.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_over)
            if self._error is not None:
                raise self._error
            assert self._results is not None
            return self._results

    @property
    def _is_over(self) -> bool:
        return self._results is not None or self._error is not None

    # Sums beside the program ----------------------------------------------------------------

    @contextmanager
    def summing(self, name: str, workers: int) -> Iterator[None]:
        """A block around a sum over so many workers."""
        self.workers = workers
        with self.times.summing(name):
            yield

    def overlap(self, clock: float, bytes_back: int) -> Overlap:
        """The account of the launch: results leave, are summed, and weights come back.

        What the program does before the first result counts as that one's backward pass.

        clock         of the machine, in Hz.
        bytes_back    of the weights, which each result has its share of.
        """
        before, layers, total = 0, [], sum(self.bytes.values())
        for number, cycles in self.cycles.items():
            size = self.bytes[number]
            back = bytes_back * size // total if total else 0
            layers.append(layer_of((cycles - before) / clock, size, back, self.workers))
            before = cycles
        return account(layers)

    def summary(self, clock: float, bytes_back: int) -> dict[str, Any]:
        """Account and times of a launch that is over, for a report; seconds."""
        overlap = self.overlap(clock, bytes_back)
        return {
            "workers": self.workers,
            "account": {
                "computed": overlap.computed, "communicated": overlap.communicated,
                "hidden": overlap.hidden, "exposed": overlap.exposed,
                "left": {self.names[n]: c / clock for n, c in self.cycles.items()},
            },
            "host": self.times.summary(),
        }

    def lines(self, clock: float, bytes_back: int) -> Iterator[str]:
        """The summary in words."""
        overlap, times = self.overlap(clock, bytes_back), self.times
        yield (
            f"host_call: {len(self.cycles)} tensors leave as they are computed; transfers and sums "
            f"over {self.workers} workers take {overlap.communicated:.3g} s, {overlap.hidden:.3g} "
            f"of them beside the program's {overlap.computed:.3g} s (account)"
        )
        if times.sums and times.computed is not None:
            yield (
                f"on this host the sums overlapped the program for {times.overlap:.3g} of "
                f"{times.computed:.3g} s"
            )


def departures(nodes: Sequence[str], outputs: Sequence[Any]) -> list[int]:
    """Numbers of the outputs behind the first, in the order in which a program computes them.

    nodes    names of the program's nodes, in their order.
    """
    places = {name: place for place, name in enumerate(nodes)}
    return sorted(range(1, len(outputs)), key=lambda i: places.get(outputs[i].op.name, -1))


def streamed(
    run: Callable[..., list[Any]], new: Callable[[], Outgoing], inputs: Sequence[Any],
    kinds: Sequence[Any], order: Sequence[int],
) -> list[Any]:
    """Tensors of a program's results; those of `order` are there before its end.

    run      of the inputs' values and an `Outgoing`, which `new` makes.
    kinds    data types of the results.
    """
    launches: dict[int, Outgoing] = {}
    tickets = itertools.count()

    def start(*values: Any) -> Any:
        ticket, out = next(tickets), new()
        launches[ticket] = out
        # TensorFlow may write over what it gave once this node is over.
        copies = [np.array(value) for value in values]
        out.begin(lambda: run(*copies, outgoing=out))
        return np.int64(ticket)

    ticket = tf.numpy_function(start, inputs, tf.int64, name="launch")
    received: dict[int, Any] = {}
    before: list[Any] = []
    for number in order:
        with tf.control_dependencies(before):
            received[number] = tf.numpy_function(
                lambda t, number=number: launches[int(t)].take(number), [ticket], kinds[number],
                name="result",
            )
        before = [received[number].op]

    def end(ticket: Any) -> list[Any]:
        results = launches.pop(int(ticket)).join()
        return [value for number, value in enumerate(results) if number not in received]

    rest = [number for number in range(len(kinds)) if number not in received]
    with tf.control_dependencies(before):
        last = tf.numpy_function(end, [ticket], [kinds[number] for number in rest], name="end")
    return [({**dict(zip(rest, last, strict=True)), **received})[n] for n in range(len(kinds))]
