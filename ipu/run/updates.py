"""Updates of parameters: how large they are, and how many are swallowed by rounding.

An update is the term that an optimiser adds to a parameter. It is swallowed where it is a number
other than zero and the parameter is the same after the addition. Beside its exponent, each update
has a size in units in the last place of its parameter: rounding to nearest swallows those below
one half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.elementwise.tally import PRODUCT, QUOTIENT, SUM, tally_moves
from fpsim.records.formats import Format
from fpsim.state.memory import flat_in_memory
from fpsim.state.processor import usual_arithmetic_in
from fpsim.state.tallies import BINS, number_of, sampled_exponents, stride_of
from ipu.run.exponents import Exponents, Histogram

__all__ = ["Updates", "term_of_rows"]

_BIAS = 127
#: What a term is made of its operands.
_VERBS = {"add": SUM, "addcmul": PRODUCT, "addcdiv": QUOTIENT}
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
        return self.move(layer, fmt, before, "add", (term,), 1.0, after)[:2]

    def move(
        self, layer: str, fmt: Format, before: NDArray[Any], verb: str,
        operands: Sequence[NDArray[Any]], factor: float, after: NDArray[Any],
    ) -> tuple[float, float, NDArray[np.int64]]:
        """The same of a term that is factor times "add", "addcmul" or "addcdiv" of the operands.

        Third are the exponents of what is after, as `fpsim.state.tallies` has them.

        Rounding  of the term binary32 of the host: it is looked at, nothing is computed with it.
        """
        x, *others = [_in_shape(operand, before.shape) for operand in operands]
        sizes = self._in_ulps.get(layer)
        if sizes is None:
            sizes = self._in_ulps[layer] = np.zeros(2 * _REACH + 1, np.int64)
        fields, stride = np.zeros((2, BINS), np.int64), stride_of(before.size)
        with np.errstate(over="ignore"):  # the factor may be beyond binary32
            rate = np.float32(factor)
        moves, swallowed, most, *sides = tally_moves(
            _VERBS[verb], _in_shape(before, before.shape), x, others[0] if others else x, rate,
            _in_shape(after, before.shape), fmt.emin + _BIAS, fmt.precision - 1, stride,
            (sizes, fields[0], fields[1]),
        )
        of_terms, of_after = [
            sampled_exponents(number, counted, stride)
            for (_, number), counted in zip(sides, fields, strict=True)
        ]
        self._exponents.add_counts(layer, fmt, of_terms)
        self._nonzero[layer] = self._nonzero.get(layer, 0) + moves
        self._swallowed[layer] = self._swallowed.get(layer, 0) + swallowed
        return number_of(sides[0][0]), number_of(most), of_after

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


def _in_shape(x: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """x broadcast to a shape, in binary32, flat."""
    values = np.asarray(x, np.float32)
    return flat_in_memory(values if values.shape == shape else np.broadcast_to(values, shape))


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
