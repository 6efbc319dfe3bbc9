"""Contexts of cases, and what they tell besides results: flags, numbers, counters, traps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fpsim as fp
from fpsim import Context, Format
from fpsim.state.processor import usual_arithmetic
from tests.digests.operands import SEED
from tests.digests.registry import Item


def status(context: Context) -> tuple[int, int]:
    """Flags and number of the next stochastic operation."""
    return int(context.flags), context.operation


def seeded(fmt: Format, rounding: Any = "RNE", **choices: Any) -> Context:
    return Context(fmt, rounding=rounding, seed=SEED, **choices)


def table(counts: Any) -> Iterator[Item]:
    """Counters, in the order of their names; what is 0 is left out."""
    for (tensor, operation), row in sorted(counts.items()):
        yield tensor
        yield operation
        yield [(name, int(n)) for name, n in sorted(row.items()) if n]


@usual_arithmetic
def _wide(operand: Any) -> np.ndarray:
    return np.asarray(operand, np.float64)


def trap(call: Callable[[], Any]) -> Iterator[Item]:
    """What a trap says, without its sentence."""
    try:
        call()
    except fp.FloatingPointTrap as error:
        yield error.operation
        yield int(error.flags)
        yield tuple(error.index)
        for operand in error.operands:
            values = _wide(operand)
            yield tuple(values.shape)
            yield [float(v) for v in values.reshape(-1)]
    else:
        yield "nothing"
