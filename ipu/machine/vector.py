"""Thread cycles of operations element by element: a declared model, not a promise of time.

A loop of an operation takes so many cycles of a thread for a vector of binary32 (2) or of 16-bit
numbers (4). Loads, stores and the start of a loop are left out: 1 or 2 cycles per loop in assembly,
5 in C++. bfloat16 counts as binary16 (ASSUMED, not an IPU feature).

Source    poplibs, popopsCycleEstimators.hpp; `cast` and `select` are ASSUMED to take one cycle.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import NamedTuple

from fpsim.records.formats import BINARY32, Format

__all__ = ["RATES", "LoopCost", "Rate", "operation_loops", "thread_cycles"]


class Rate(NamedTuple):
    """Cycles of one loop, for vectors of binary32 and of 16-bit numbers."""

    single: int
    half: int


_SINGLES, _HALVES = 2, 4

#: Rates by the name of the device's verb; a sum adds.
RATES: dict[str, Rate] = {
    "add": Rate(1, 1), "subtract": Rate(1, 1), "multiply": Rate(1, 1), "divide": Rate(10, 21),
    "sqrt": Rate(10, 23), "rsqrt": Rate(8, 19), "exp": Rate(6, 4), "log": Rate(12, 4),
    "tanh": Rate(12, 4), "sigmoid": Rate(12, 6), "relu": Rate(3, 3), "maximum": Rate(3, 4),
    "cast": Rate(1, 1), "select": Rate(1, 1),
}


#: The device's verb that a rounded operation stands for, where its name is another.
_VERBS = {"convert": "cast", "copy": "cast", "round_to_integral": "cast", "fmax": "maximum"}


class LoopCost(NamedTuple):
    """Cycles of a loop, and the elements that it takes."""

    cycles: int
    elements: int


def operation_loops(fmt: Format) -> defaultdict[str, LoopCost]:
    """The loop of each operation, by the context's name; 1 cycle where none is known.

    >>> from fpsim import BINARY16
    >>> loops = operation_loops(BINARY16)
    >>> loops["sqrt"], loops["convert"] == loops["sign"]
    (LoopCost(cycles=23, elements=4), True)
    """
    loops = defaultdict(lambda: _loop("add", fmt), {verb: _loop(verb, fmt) for verb in RATES})
    loops.update({name: loops[verb] for name, verb in _VERBS.items()})
    return loops


@lru_cache(maxsize=128)
def _loop(verb: str, fmt: Format) -> LoopCost:
    rate = RATES[verb]
    return LoopCost(rate.single, _SINGLES) if fmt == BINARY32 else LoopCost(rate.half, _HALVES)


def thread_cycles(verb: str, fmt: Format, elements: int) -> int:
    """Cycles of a thread for so many elements.

    >>> from fpsim import BINARY16
    >>> thread_cycles("tanh", BINARY32, 1000), thread_cycles("tanh", BINARY16, 1000)
    (6000, 1000)
    """
    # By identity: a hash of a format is a call of Python.
    loop = _LOOPS.get((verb, id(fmt)))
    if loop is None:
        loop = _LOOPS[verb, id(fmt)] = (*_loop(verb, fmt), fmt)
    return loop[0] * -(-elements // loop[1])


#: Cycles and elements of loops by verb and identity of a format, which is kept alive.
_LOOPS: dict[tuple[str, int], tuple[int, int, Format]] = {}
