"""Running sums that several experiments look at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fpsim import Context
from ipu.experiments.lab.progress import progress


def running_sums(
    context: Context, terms: NDArray[np.float64], additions: int, label: str
) -> Iterator[tuple[int, np.ndarray]]:
    """(n, sums) after each addition of its term to every lane, starting at zero.

    The terms are first rounded to nearest, as constants are. The yielded values change with the
    next addition; copy what is kept.
    """
    total = context.zeros(terms.size)
    term = context.wrap(Context(context.format).array(terms).values)
    for n in progress(range(1, additions + 1), label, additions):
        context.add(total, term, out=total)
        yield n, total.values
