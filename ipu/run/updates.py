"""Updates of parameters: how large they are, and how many are swallowed by rounding.

An update is the term that an optimiser adds to a parameter. It is swallowed where it is a number
other than zero and the parameter is the same after the addition. Beside its exponent, each update
has a size in units in the last place of its parameter: rounding to nearest swallows those below
one half.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.elementwise.tally import tally_moves
from fpsim.records.formats import Format
from fpsim.state.memory import flat_in_memory
from fpsim.state.processor import usual_arithmetic_in
from fpsim.state.tallies import largest_of, tally_of
from ipu.run.exponents import Exponents, Histogram

__all__ = ["Updates", "term_of_rows"]

_BIAS = 127
#: Sizes in units in the last place go from 2**-_REACH to 2**_REACH; others count at the ends.
_REACH = 40


@usual_arithmetic_in()
class Updates:
    """Updates by layer.

    >>> from fpsim import BINARY16
    >>> updates = Updates()
    >>> before, term = np.float32([1.0, 1.0, 1.0]), np.float32([0.5, 1e-4, 0.0])
    >>> updates.add("head", BINARY16, before, term, np.float32([1.5, 1.0, 1.0]))
    (0.5, 1.0)
    >>> updates.summary()["head"]["swallowed"], updates.summary()["head"]["nonzero"]
    (1, 2)
    """

    def __init__(self) -> None:
        self._exponents = Exponents()
        self._in_ulps: dict[str, NDArray[np.int64]] = {}
        self._nonzero: dict[str, int] = {}
        self._swallowed: dict[str, int] = {}

    def add(
        self, layer: str, fmt: Format, before: NDArray[Any], term: NDArray[Any],
        after: NDArray[Any],
    ) -> tuple[float, float]:
        """One addition of a term to a parameter of this format; the largest sizes of both.

        Shapes    before and after have one shape, to which the term broadcasts.
        """
        term = np.broadcast_to(np.asarray(term, np.float32), before.shape)
        tally = tally_of(term)
        self._exponents.add_counts(layer, fmt, tally.exponents)
        sizes = self._in_ulps.get(layer)
        if sizes is None:
            sizes = self._in_ulps[layer] = np.zeros(2 * _REACH + 1, np.int64)
        words = [
            flat_in_memory(np.asarray(x, np.float32)).view(np.uint32) for x in (before, term, after)
        ]
        moves, swallowed = tally_moves(*words, fmt.emin + _BIAS, fmt.precision - 1, sizes)
        self._nonzero[layer] = self._nonzero.get(layer, 0) + moves
        self._swallowed[layer] = self._swallowed.get(layer, 0) + swallowed
        return tally.most, largest_of(words[0])

    def histograms(self) -> list[Histogram]:
        """Exponents of the updates of each layer."""
        return list(self._exponents)

    def summary(self) -> dict[str, dict[str, Any]]:
        """By layer: updates other than zero, those swallowed, their share, sizes in ulps.

        in_ulps    updates by the exponent of their size in units in the last place.
        """
        return {
            layer: {
                "nonzero": nonzero,
                "swallowed": self._swallowed[layer],
                "share": self._swallowed[layer] / nonzero if nonzero else 0.0,
                "in_ulps": {
                    int(i) - _REACH: int(self._in_ulps[layer][i])
                    for i in np.flatnonzero(self._in_ulps[layer])
                },
            }
            for layer, nonzero in self._nonzero.items()
        }


def term_of_rows(
    shape: tuple[int, ...], rows: NDArray[np.integer], terms: NDArray[Any]
) -> NDArray[np.float32]:
    """Terms that are added to some rows of a parameter, as the term of all of it.

    >>> term_of_rows((3,), np.array([2, 0, 2]), np.float32([1.0, 2.0, 4.0])).tolist()
    [2.0, 0.0, 5.0]
    """
    whole = np.zeros(shape, np.float32)
    np.add.at(whole, rows, terms)
    return whole
