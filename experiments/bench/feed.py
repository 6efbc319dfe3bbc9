"""What queues and loops cost beside the work: per iteration, and per element beyond its copy.

The reference is a copy of each element, with as many copies alive as the queue has: memory that is
in no cache costs more than the queue. Threads take turns, so times depend on the interpreter's lock
and on what else the system does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import repeat as again

import numpy as np
from numpy.typing import NDArray

from ipu.experiments.bench.timing import Call, Size, TimedCase, wall_seconds
from ipu.feed.infeed import Infeed
from ipu.feed.loops import repeat
from ipu.feed.outfeed import Outfeed

__all__ = ["cases"]

PREFETCH = 3
#: Iterations between two looks at the clock.
OFTEN = 2000
#: Bytes of an element, and what divides the number of iterations: an outfeed keeps all elements.
#: Larger ones would measure how the system hands out fresh memory.
ELEMENTS = {"64 B": (64, 1), "64 KiB": (1 << 16, 25)}


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """A loop alone, carrying a number and an array; then with an infeed, and with an outfeed."""
    often = 50 if quick else OFTEN
    repeats = size.repeats
    yield TimedCase("feed repeat", "int", partial(_loop, often, 0), None, often, repeats, data="–",
               clock=wall_seconds)
    array = np.zeros(16)
    yield TimedCase("feed repeat", "float64", partial(_loop, often, array), None, often, repeats,
               data="128 B", clock=wall_seconds)
    for name, (nbytes, fewer) in ELEMENTS.items():
        element, n = np.zeros(nbytes // 4, np.float32), often // fewer
        yield TimedCase("feed infeed", "float32", partial(_infeed, n, element),
                   partial(_copies, n, element, PREFETCH + 2), n, repeats, data=name,
                   clock=wall_seconds)
        yield TimedCase("feed outfeed", "float32", partial(_outfeed, n, element),
                   partial(_copies, n, element, None), n, repeats, data=name,
                   clock=wall_seconds)


def _loop(often: int, carried: object) -> Call:
    return partial(repeat, often, lambda value: value, carried)


def _infeed(often: int, element: NDArray[np.float32]) -> Call:
    infeed = Infeed(partial(again, element), PREFETCH)
    return lambda: repeat(often, lambda x: None, infeed=infeed)


def _outfeed(often: int, element: NDArray[np.float32]) -> Call:
    outfeed = Outfeed()

    def call() -> None:
        repeat(often, partial(outfeed.enqueue, element))
        for _ in outfeed:
            pass

    return call


def _copies(often: int, element: NDArray[np.float32], alive: int | None) -> None:
    """Copies of which the last `alive` are kept, None for all: other memory for each."""
    copies: deque[NDArray[np.float32]] = deque(maxlen=alive)
    for _ in range(often):
        copies.append(element.copy())
