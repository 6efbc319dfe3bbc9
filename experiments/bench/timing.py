"""What a benchmark record holds, and how its time is taken.

The call and its reference (np.copyto of the same amount of data, unless a topic says otherwise) run
in turn (see `in_turn`); the medians of both and their ratio come from the same seconds of the same
machine. Matrix products have a kind, and a rate instead of a time.

With one thread a time is the thread's processor time: beside other work the wall time of a long
call grows by waiting, that of a short one (BLAS, a copy) hardly, so their ratio would be wrong by
up to two. The record says how much of the wall time it was; more threads are timed by the wall.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fpsim.state.threads import get_threads, run_blocks, set_threads

__all__ = [
    "BenchmarkRecord", "LEAST_SHARE", "Size", "TimedCase", "Turns", "Written", "copy", "in_turn",
    "measure", "processor_seconds", "run", "seconds", "to_json", "wall_seconds",
]

Call = Callable[[], object]


@dataclass(frozen=True)
class Size:
    """How much work: elements, and timed repetitions of each call."""

    n: int = 10_000_000
    repeats: int = 7

    def peer(self) -> Size:
        """Slower tools get fewer elements; times are per element."""
        return Size(min(self.n, 1_000_000), min(self.repeats, 3))


#: A call and the clock that takes its time.
Timed = tuple[Call, Callable[[Call], float]]

#: Seconds after which threads that have nothing to do have gone to sleep.
_REST = 0.2


#: Share of processor time in wall time below which a machine does other work beside a measurement.
LEAST_SHARE = 0.97


def seconds(call: Call) -> float:
    """The call's time: this thread's processor time with one thread, else wall time."""
    if get_threads() > 1:
        return wall_seconds(call)
    start = time.thread_time()
    call()
    return time.thread_time() - start


def wall_seconds(call: Call) -> float:
    """Time of a call that waits for other threads or processes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def processor_seconds(call: Call) -> float:
    """Processor time of all threads, for a call that others than this one compute."""
    start = time.process_time()
    call()
    return time.process_time() - start


#: Clocks that take the time of any call; by others a call tells its own.
_CLOCKS = wall_seconds, processor_seconds


class Turns(NamedTuple):
    """Seconds of each call by round.

    share    of wall time that was processor time, in the least disturbed round of the most
             disturbed call; None with several threads, and where a call tells its own time.
    """

    seconds: list[list[float]]
    share: float | None


@dataclass(frozen=True)
class TimedCase:
    """One thing to measure. `prepare` makes the call, so arrays exist only while it is measured."""

    topic: str
    format: str
    prepare: Callable[[], Call]
    reference: Call | None
    n: int
    repeats: int
    rounding: str = "RNE"
    bits: int | None = None
    flags: bool = False
    data: str = "mixed"
    peer: str | None = None
    reference_n: int = 0  # elements of the reference, where they are not n
    warm: bool = True  # call once before the clock starts
    kind: str | None = None  # of a product of two n x n matrices
    alone: bool = False  # the call knows one thread, and its reference gets one as well
    clock: Callable[[Call], float] = seconds


@dataclass(frozen=True)
class BenchmarkRecord:
    """A case measured: `reference` is the reference's figure in the same unit, ratio = own / it.

    rounds   timed repetitions.
    share    see `Turns`.
    range    least and largest ratio of a round; of the figure where there is no reference.
    """

    topic: str
    format: str
    rounding: str
    bits: int | None
    flags: bool
    data: str
    n: int
    threads: int
    ns_per_element: float | None
    gmac_per_s: float | None
    reference: float | None
    ratio: float | None
    peer: str | None
    rounds: int
    range: tuple[float, float]
    kind: str | None
    share: float | None = None

    def fields(self) -> dict[str, object]:
        """What is written: an elementwise case has no rate, a product has no time per element."""
        unused = ("ns_per_element",) if self.kind else ("gmac_per_s", "kind")
        return {k: v for k, v in asdict(self).items() if k not in unused}

    def __str__(self) -> str:
        mode = self.rounding if self.bits is None else f"{self.rounding}({self.bits})"
        flags = "flags" if self.flags else "-"
        ratio = "" if self.ratio is None else f"{self.ratio:8.2f}"
        return (
            f"{self.topic:16} {self.format:9} {mode:9} {flags:6}{self.data:7}"
            f"{self._figure():>13} {ratio:8}  {self.peer or self.kind or ''}"
        ).rstrip()

    def _figure(self) -> str:
        if self.ns_per_element is not None:
            return in_words(self.ns_per_element)
        return f"{self.gmac_per_s:.2f} GMAC/s"


class Written(Protocol):
    """What every record can do; its text is a line."""

    @property
    def share(self) -> float | None:
        """Of wall time that was processor time; None where that was not asked."""

    def fields(self) -> dict[str, object]:
        """What is written."""


def in_words(ns: float) -> str:
    """A time with a unit that suits it.

    >>> in_words(0.21), in_words(4_300.0), in_words(2.5e9)
    ('0.210 ns', '4.300 us', '2.500 s')
    """
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3f} {unit}"
    return f"{ns:.3f} ns"


def copy(source: NDArray[np.generic], target: NDArray[np.generic]) -> Call:
    """np.copyto by as many threads as kernels use."""

    def part(a: int, b: int) -> int:
        np.copyto(target[a:b], source[a:b])
        return 0

    return lambda: run_blocks(part, 0, source.size, 1 << 20)


def in_turn(calls: Sequence[Timed], repeats: int) -> Turns:
    """Each call, `repeats` times.

    One after the other in each round with one thread. With more, each call has its rounds to
    itself, after a rest: threads of BLAS and of OpenMP hold a core for a while when they are done,
    and two threads that were asleep begin on the same core.
    """
    if get_threads() == 1:
        return _alone(calls, repeats)
    taken = []
    for call, clock in calls:
        time.sleep(_REST)
        awake = time.perf_counter() + _REST
        while time.perf_counter() < awake:
            clock(call)
        taken.append([clock(call) for _ in range(repeats)])
    return Turns(taken, None)


def _alone(calls: Sequence[Timed], repeats: int) -> Turns:
    taken: list[list[float]] = [[] for _ in calls]
    shares: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for (call, clock), times, parts in zip(calls, taken, shares, strict=True):
            start = time.perf_counter()
            times.append(clock(call))
            if clock in (seconds, processor_seconds):
                parts.append(times[-1] / (time.perf_counter() - start))
    return Turns(taken, min((max(parts) for parts in shares if parts), default=None))


@contextmanager
def _threads(n: int) -> Iterator[None]:
    """Inside, that many threads for kernels and for copies."""
    before = get_threads()
    set_threads(n)
    try:
        yield
    finally:
        set_threads(before)


def measure(case: TimedCase) -> BenchmarkRecord:
    """Warm up (which compiles), then time the call and its reference in turn; medians."""
    with _threads(1 if case.alone else get_threads()):
        return _measure(case)


def _measure(case: TimedCase) -> BenchmarkRecord:
    call = case.prepare()
    if case.warm:
        call()
    calls: list[Timed] = [(call, case.clock)]
    if case.reference is not None:
        calls.append((case.reference, case.clock if case.clock in _CLOCKS else seconds))
    turns = in_turn(calls, case.repeats)
    of_case, *other = turns.seconds
    figures = [_figure(case, seconds, case.n) for seconds in of_case]
    references = [_figure(case, s, case.reference_n or case.n) for s in (other[0] if other else ())]
    figure = statistics.median(figures)
    reference = statistics.median(references) if other else None
    rounds = [x / y for x, y in zip(figures, references, strict=True)] if other else figures
    time_, rate = (None, figure) if case.kind else (figure, None)
    return BenchmarkRecord(
        case.topic, case.format, case.rounding, case.bits, case.flags, case.data, case.n,
        get_threads(), time_, rate, reference, None if reference is None else figure / reference,
        case.peer, case.repeats, (min(rounds), max(rounds)), case.kind, turns.share,
    )


def _figure(case: TimedCase, seconds: float, n: int) -> float:
    """GMAC/s of a product of n x n matrices, else nanoseconds per element."""
    return float(n) ** 3 / seconds / 1e9 if case.kind else seconds / n * 1e9


def run(cases: Iterable[TimedCase | Callable[[], Written]], threads: int) -> Iterator[Written]:
    """Records of the cases in turn, with that many threads for kernels and reference.

    A case that is no call beside a reference makes its own record.
    """
    with _threads(threads):
        for case in cases:
            yield measure(case) if isinstance(case, TimedCase) else case()


def to_json(records: Iterable[Written], hardware: object) -> str:
    """A list of objects, one line each; each says what it was measured on."""
    rows = (json.dumps({**record.fields(), "hardware": hardware}) for record in records)
    return "[\n" + ",\n".join(rows) + "\n]\n"
