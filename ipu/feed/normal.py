"""Inputs that are not normalised: told, because narrow formats have few digits to spare for them.

Source    the maker's tutorial on half precision: inputs should always be normalised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.records.evidence import Evidence, Fact

__all__ = ["OFFSET", "SIZE", "not_normalised"]

SIZE = Fact(8.0, Evidence.ASSUMED, "root mean square above which inputs count as not normalised")
OFFSET = Fact(
    4.0, Evidence.ASSUMED,
    "deviations between the mean and 0 above which inputs count as not centred, of means above 1",
)
#: Fewer numbers say little about a data set.
_LEAST = 16


def not_normalised(tensors: Iterable[NDArray[Any]]) -> Iterator[str]:
    """A sentence for each tensor of floating-point numbers that is not normalised.

    >>> list(not_normalised([np.linspace(-1.0, 1.0, 100)]))
    []
    >>> list(not_normalised([np.linspace(0.0, 255.0, 100)]))[0][:52]
    'input 0 is not normalised: root mean square 147.6, m'
    """
    for number, tensor in enumerate(tensors):
        values = np.asarray(tensor)
        if values.dtype.kind != "f" and values.dtype.name != "bfloat16":
            continue
        finite = values.astype(np.float64).ravel()
        finite = finite[np.isfinite(finite)]
        if len(finite) < _LEAST:
            continue
        mean, deviation = float(finite.mean()), float(finite.std())
        size = float(np.hypot(mean, deviation))
        is_apart = abs(mean) > max(1.0, OFFSET.value * deviation)
        if size > SIZE.value or is_apart:
            yield (
                f"input {number} is not normalised: root mean square {size:.5g}, mean {mean:.5g}, "
                f"deviation {deviation:.5g}; subtract the mean and divide by the deviation"
            )
