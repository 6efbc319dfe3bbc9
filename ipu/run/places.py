"""Places: the number of a stochastic operation by where it stands in a user's program.

n = 2^63 | (h >> 1), where h is the big-endian integer of the 8-byte BLAKE2b digest of the text
`step/micro_batch/replica/layer/direction/k`. k counts the stochastic operations of that place, so
work at another place cannot shift its bits. In the direction `optimizer` micro_batch and replica
are 0; in the direction `evaluation` micro_batch counts evaluations since the last step.

Source    docs/semantics.md §2 (named addresses).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from struct import unpack
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.state.state import Clock

__all__ = ["DIRECTIONS", "Place", "PlaceClock", "ReplayStart", "number", "numbers_of"]

#: What a program does at a place.
DIRECTIONS = ("forward", "backward", "optimizer", "evaluation", "other")


class Place(NamedTuple):
    """Where an operation stands; k is not part of it."""

    step: int
    micro_batch: int
    replica: int
    layer: str
    direction: str

    @property
    def text(self) -> str:
        """The place as it is hashed, but for k."""
        step, micro_batch, replica, layer, direction = self
        return f"{step}/{micro_batch}/{replica}/{layer}/{direction}"


def number(place: Place, k: int) -> int:
    """The number n of the k-th stochastic operation of a place.

    >>> number(Place(0, 0, 0, "net.conv1", "forward"), 0)
    15385820920640642868
    """
    digest = blake2b(f"{place.text}/{k}".encode(), digest_size=8).digest()
    return 1 << 63 | int.from_bytes(digest, "big") >> 1


def numbers_of(step: int, places: Iterable[tuple[str, int]]) -> NDArray[np.uint64]:
    """Numbers of operations in a step: each by the text of its place behind the step, and k.

    >>> numbers_of(2, [("0/0/net/forward", 1)]).tolist() == [number(Place(2, 0, 0, "net",
    ...     "forward"), 1)]
    True
    """
    return _numbers([
        blake2b(b"%d/%s/%d" % (step, rest.encode(), k), digest_size=8).digest()
        for rest, k in places
    ])


def _numbers(digests: Sequence[bytes]) -> NDArray[np.uint64]:
    numbers = np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)
    return np.uint64(1 << 63) | numbers >> np.uint64(1)


def _digests(place: Place, start: int, n: int) -> list[bytes]:
    """Of n operations of a place in order: what their numbers are made of."""
    begun = blake2b(f"{place.text}/".encode(), digest_size=8)
    digests = []
    for k in range(start, start + n):
        digest = begun.copy()
        digest.update(b"%d" % k)
        digests.append(digest.digest())
    return digests


def _shared(place: Place) -> Place:
    """A place as it is numbered: updates draw the same bits in all micro-batches and replicas."""
    if place.direction == "optimizer" and (place.micro_batch or place.replica):
        return place._replace(micro_batch=0, replica=0)
    return place


class ReplayStart(NamedTuple):
    """Where a computation started, so that it can be repeated with the same random bits."""

    place: Place
    counts: dict[Place, int]


class PlaceClock(Clock):
    """A device's clock that gives the number of the next operation by its place.

    Assigning the number + 1, as every operation that has drawn does, moves on to the next k.

    >>> clock = PlaceClock()
    >>> clock.place = Place(0, 0, 0, "net.conv1", "forward")
    >>> clock.operation
    15385820920640642868
    >>> clock.operation += 1
    >>> clock.k
    1
    """

    def __init__(self) -> None:
        self._place = Place(0, 0, 0, "", "other")
        self._counts: dict[Place, int] = {}
        self._number: int | None = None
        super().__init__()

    @property
    def place(self) -> Place:
        """Where the next operations stand."""
        return self._place

    @place.setter
    def place(self, place: Place) -> None:
        if place.direction not in DIRECTIONS:
            directions = ", ".join(DIRECTIONS)
            raise ValueError(f"direction={place.direction!r} is not known; use one of {directions}")
        place = _shared(place)
        if place != self._place:
            self._place, self._number = place, None

    @property
    def k(self) -> int:
        """Stochastic operations of this place so far."""
        return self._counts.get(self._place, 0)

    @property
    def operation(self) -> int:
        """n of the next stochastic operation."""
        if self._number is None:  # each operation asks: no call more than it takes
            self._number = number(self._place, self._counts.get(self._place, 0))
        return self._number

    @operation.setter
    def operation(self, after: int) -> None:
        if self._number is not None and after == self._number + 1:
            self._counts[self._place] = self._counts.get(self._place, 0) + 1
            self._number = None
        elif after:
            raise RuntimeError(
                f"operation={after} of a device whose operations are numbered by place; "
                "assign clock.place instead"
            )

    def take(self, n: int) -> Sequence[int]:
        """Numbers of the next n stochastic operations of this place, which have then been."""
        if n == 0:
            return ()
        start = self.k
        digests = _digests(self._place, start, n)
        numbers = [1 << 63 | h >> 1 for h in unpack(f">{n}Q", b"".join(digests))]
        self._counts[self._place] = start + n
        self._number = None
        return numbers

    def take_each(self, places: Iterable[tuple[Place, int]]) -> NDArray[np.uint64]:
        """The same of several places, one after the other; the place of now stays.

        >>> clock, place = PlaceClock(), Place(0, 0, 0, "net.conv1", "forward")
        >>> numbers = clock.take_each([(place, 1), (place._replace(layer="net.conv2"), 2)])
        >>> len(numbers), int(numbers[0]) == number(place, 0)
        (3, True)
        """
        counts, digests = self._counts, []
        for place, n in places:
            place = _shared(place)
            k = counts.get(place, 0)
            counts[place] = k + n
            digests += _digests(place, k, n)
        self._number = None
        return _numbers(digests)

    def give_each_back(self, places: Iterable[tuple[Place, int]]) -> None:
        """The last n of each place that were taken have not been."""
        for place, n in places:
            self._counts[_shared(place)] -= n
        self._number = None

    def give_back(self, n: int) -> None:
        """The last n of this place that were taken have not been: they are the next again."""
        self._counts[self._place] = self.k - n
        self._number = None

    def drawn(self) -> dict[tuple[object, ...], int]:
        """Stochastic operations so far, by place without its step; none of evaluations."""
        return {
            place[1:]: k for place, k in self._counts.items()
            if k and place.direction not in ("evaluation", "other")
        }

    def go_on_at(self, k: int) -> None:
        """So many stochastic operations of this place have been."""
        self._counts[self._place] = k
        self._number = None

    def forget(self) -> None:
        """No place has drawn yet: at the start of a step, whose number is another one."""
        self._counts.clear()
        self._number = None

    def drop(self, place: Place) -> None:
        """Nothing will be computed at this place again."""
        self._counts.pop(place, None)
        if place == self._place:
            self._number = None

    def forget_direction(self, direction: str) -> None:
        """No place of a direction has drawn yet; those of the others go on."""
        for place in [old for old in self._counts if old.direction == direction]:
            del self._counts[place]
        self._number = None

    def mark(self) -> ReplayStart:
        """The state of all places, for `replaying`."""
        return ReplayStart(self._place, dict(self._counts))

    @contextmanager
    def replaying(self, start: ReplayStart) -> Iterator[None]:
        """The operations inside draw what those after `start` drew; afterwards k is as before."""
        place, counts = self._place, self._counts
        self._place, self._counts, self._number = start.place, dict(start.counts), None
        try:
            yield
        finally:
            self._place, self._counts, self._number = place, counts, None
