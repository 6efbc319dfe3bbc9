"""What bounds a program that the host feeds: the machine, the host's processor, or the transfer.

How long the host takes to make an element is measured, in the process that makes it. What the
transfer and the machine take is the account's. So the sentence compares a real host with a declared
machine: it is right where the data really come from here.

Source    the maker's guide on performance, §4.3.2 (processes and hosts), §4.4 and §4.5.1.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ipu.feed.normal import not_normalised
from ipu.machine.target import Target
from ipu.plan.cycles import Rates, shares, timeline
from ipu.plan.explain import few_rounds
from ipu.plan.memory import StageFigures
from ipu.plan.plan import Plan

__all__ = ["Feeding", "Pace", "pace_of"]


class Feeding:
    """What the host feeds: seconds that it took to make elements, whether they are normalised.

    >>> feeding = Feeding()
    >>> list(feeding.timed([1, 2])), feeding.elements, feeding.seconds > 0
    ([1, 2], 2, True)
    """

    def __init__(self) -> None:
        self.elements = 0
        self.seconds = 0.0
        #: What is told of the first element's numbers; None before it.
        self.inputs: list[str] | None = None

    def look(self, tensors: Iterable[NDArray[Any]]) -> None:
        """See whether the numbers of the first element are normalised."""
        if self.inputs is None:
            self.inputs = list(not_normalised(tensors))

    def note(self, seconds: float) -> None:
        """One more element."""
        self.elements += 1
        self.seconds += seconds

    def timed(self, elements: Iterable[Any]) -> Iterator[Any]:
        """The elements, each measured until it is there."""
        iterator = iter(elements)
        while True:
            start = time.perf_counter()
            try:
                element = next(iterator)
            except StopIteration:
                return
            self.note(time.perf_counter() - start)
            yield element

    @property
    def each(self) -> float:
        """Seconds of one element; 0 of none."""
        return self.seconds / self.elements if self.elements else 0.0


class Pace(NamedTuple):
    """Seconds of one update: of one host process, of the transfer, of the machine.

    overlaps    transfers run beside the machine's work, on I/O tiles.

    >>> Pace(make=2.0, move=0.5, compute=1.0).bound
    'processor'
    >>> Pace(make=0.1, move=1.5, compute=1.0).bound
    'transfer'
    >>> Pace(make=0.1, move=0.2, compute=1.0).bound
    'machine'
    """

    make: float
    move: float
    compute: float
    overlaps: bool = False

    @property
    def bound(self) -> str:
        """What the others wait for: "machine", "processor" or "transfer"."""
        device = max(self.move, self.compute) if self.overlaps else self.move + self.compute
        if self.make > device:
            return "processor"
        return "transfer" if self.move > self.compute else "machine"

    @property
    def line(self) -> str:
        """Which of them bounds the run, and what the guide advises."""
        return (
            f"an update's data take {self.make:.3g} s to make here in one process (measured) and "
            f"{self.move:.3g} s to move, the IPUs' work {self.compute:.3g} s (account): "
            f"{_VERDICTS[self.bound]}"
            + (_ALSO if self.bound == "processor" and self.move > self.compute else "")
        )


_VERDICTS = {
    "machine": "the machine bounds the run, and no host does",
    "processor": "the host's processor bounds the run; use more host processes (fpsim poprun), "
    "cache the data set, or preprocess on the IPU",
    "transfer": "host I/O bounds the run; use more hosts, I/O tiles, or fewer bytes (float16, "
    "int8)",
}
_ALSO = "; host I/O is slower than the IPUs too: use more hosts"


def pace_of(make: float, plan: Plan, figures: Sequence[StageFigures], target: Target) -> Pace:
    """The pace of a plan whose update takes that many seconds of a host's process to feed."""
    few = few_rounds(plan)
    events = timeline(few, figures, Rates(target))
    rows = shares(events).values()
    moved = max((row.by_lane["host"] for row in rows), default=0.0)
    total = max((row.total for row in rows), default=0.0)
    overlaps = plan.io_tiles > 0
    computed = total if overlaps else total - moved
    scale = plan.count / few.count / target.clock.value
    return Pace(make, moved * scale, computed * scale, overlaps)
