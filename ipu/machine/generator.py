"""Sources of a device's random bits: Philox, or the machine's own generator.

The machine has a stream of xoroshiro128aox in every worker of every tile. It survives the workers,
so a stream goes on from one operation to the next.

Sources disagree on the warm-up after seeding: the machine's vertex takes 15 draws, the host's model
of it 4. The vertex is followed.

Source    poplibs, poprand (Seeds.S: the words of a worker; RandomGen.cpp: the modifiers);
          docs/semantics.md §2 (which elements a worker takes).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fpsim.kernels.random.xoroshiro import VECTOR, dealt_lanes
from fpsim.records.evidence import Evidence, Fact
from fpsim.state.bits import BitSource, Philox, check_seed
from fpsim.state.streams import XoroshiroStreams
from ipu.machine.target import Target

__all__ = ["RANDOM", "WARM_UP", "WORKERS", "WorkerStreams", "find_source"]

#: What the bits of the machine's own generator rest on.
WORKERS: dict[str, Fact] = {
    "elements of a worker": Fact(
        "blocks to tiles, vectors of four to workers in turn", Evidence.ASSUMED,
        "docs/semantics.md §2",
    ),
    "seeds of workers": Fact(
        "the seed and tile << 4 ^ 0xAAAAAAA0 | worker, 0x55555555", Evidence.DOCUMENTED,
        "poplibs, Seeds.S and RandomGen.cpp",
    ),
}

#: Draws of every worker after seeding.
WARM_UP = 15

#: Modifiers of the second word: of the hardware, with the tile above its lowest digits, and of the
#: user, whose default is 0.
_HARDWARE, _USER = 0xAAAAAAA0, 0 ^ 0x55555555


class WorkerStreams(XoroshiroStreams):
    """The generator of every worker of every tile, seeded with 64 bits.

    >>> from ipu.machine import MK2
    >>> source = WorkerStreams(42, MK2)
    >>> source, source.states.shape
    (WorkerStreams(seed=42, target=mk2), (1472, 6, 2))
    """

    def __init__(self, seed: int, target: Target) -> None:
        tiles, workers = target.tiles.value, target.workers.value
        tile, worker = np.ogrid[:tiles, :workers]
        states = np.empty((tiles, workers, 2), np.uint64)
        states[..., 0] = check_seed(seed)
        states[..., 1] = (tile << 4 ^ _HARDWARE) | worker | _USER << 32
        _, warm = dealt_lanes(states, tiles * workers * VECTOR * WARM_UP)
        super().__init__(warm)
        self._about = f"seed={seed}, target={target.name}"

    def __repr__(self) -> str:
        return f"WorkerStreams({self._about})"


#: Sources by the name of a device's choice.
RANDOM: dict[str, Callable[[int, Target], BitSource]] = {
    "philox": lambda seed, target: Philox(seed),
    "xoroshiro": WorkerStreams,
}


def find_source(random: str, seed: int, target: Target) -> BitSource:
    """The source of that name.

    >>> find_source("mt19937", 0, None)
    Traceback (most recent call last):
    ...
    ValueError: random='mt19937' is not known; use philox or xoroshiro
    """
    if not isinstance(random, str) or random not in RANDOM:
        raise ValueError(f"random={random!r} is not known; use {' or '.join(RANDOM)}")
    return RANDOM[random](seed, target)
