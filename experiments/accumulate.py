"""Running sums that several experiments look at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from experiments.progress import progress
from fpsim import Context


def running_sums(
    context: Context, term: float, additions: int, lanes: int, label: str
) -> Iterator[tuple[int, np.ndarray]]:
    """(n, sums) after each addition of the same term to every lane, starting at zero.

    The term is first rounded to nearest, as a constant is. The yielded values change with the next
    addition; copy what is kept.
    """
    total = context.zeros(lanes)
    step = context.constant(term)
    for n in progress(range(1, additions + 1), label, additions):
        context.add(total, step, out=total)
        yield n, total.values
