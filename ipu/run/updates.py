"""Updates of parameters: how large they are, and how many are swallowed by rounding.

An update is the term that an optimiser adds to a parameter. It is swallowed where it is a number
other than zero and the parameter is the same after the addition. Beside its exponent, each update
has a size in units in the last place of its parameter: rounding to nearest swallows those below
one half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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


@dataclass(eq=False)
class _OfLayer:
    """Updates of one layer.

    first         step and line of the first one that was swallowed; None: none was.
    parameters    updates other than zero, and swallowed ones, by the parameter's name.
    """

    format: Format
    nonzero: int = 0
    swallowed: int = 0
    in_ulps: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2 * _REACH + 1, np.int64))
    first: tuple[int, str] | None = None
    parameters: dict[str, tuple[int, int]] = field(default_factory=dict)

    def count(self, parameter: str, moves: int, swallowed: int) -> None:
        """So many updates of a parameter are other than zero, and so many of them swallowed."""
        self.nonzero += moves
        self.swallowed += swallowed
        if parameter:
            before = self.parameters.get(parameter, (0, 0))
            self.parameters[parameter] = before[0] + moves, before[1] + swallowed

    def row(self) -> dict[str, Any]:
        """In plain data."""
        step, line = self.first or (0, "")
        sizes = np.flatnonzero(self.in_ulps)
        return {
            "nonzero": self.nonzero,
            "swallowed": self.swallowed,
            "share": self.swallowed / self.nonzero if self.nonzero else 0.0,
            "in_ulps": {int(i) - _REACH: int(self.in_ulps[i]) for i in sizes},
            "format": self.format.name,
            "step": step,
            "line": line,
            "parameters": {
                name: {"nonzero": moves, "swallowed": swallowed}
                for name, (moves, swallowed) in self.parameters.items()
            },
        }


@usual_arithmetic_in()
class Updates:
    """Updates by layer.

    place    step and line of the program, where it is now.

    >>> from fpsim import BINARY16
    >>> updates = Updates()
    >>> before, term = np.float32([1.0, 1.0, 1.0]), np.float32([0.5, 1e-4, 0.0])
    >>> updates.add("head", BINARY16, before, term, np.float32([1.5, 1.0, 1.0]))
    (0.5, 1.0)
    >>> updates.summary()["head"]["swallowed"], updates.summary()["head"]["nonzero"]
    (1, 2)
    """

    def __init__(self, place: Callable[[], tuple[int, str]] = lambda: (0, "")) -> None:
        self._place = place
        self._exponents = Exponents()
        self._layers: dict[str, _OfLayer] = {}

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
        operands: Sequence[NDArray[Any]], factor: float, after: NDArray[Any], parameter: str = "",
    ) -> tuple[float, float, NDArray[np.int64]]:
        """The same of a term that is factor times "add", "addcmul" or "addcdiv" of the operands.

        parameter    its name in the layer; "": it has none.

        Third are the exponents of what is after, as `fpsim.state.tallies` has them.

        Rounding  of the term binary32 of the host: it is looked at, nothing is computed with it.
        """
        x, *others = [_in_shape(operand, before.shape) for operand in operands]
        of_layer = self._layers.get(layer)
        if of_layer is None:
            of_layer = self._layers[layer] = _OfLayer(fmt)
        fields, stride = np.zeros((2, BINS), np.int64), stride_of(before.size)
        with np.errstate(over="ignore"):  # the factor may be beyond binary32
            rate = np.float32(factor)
        moves, swallowed, most, *sides = tally_moves(
            _VERBS[verb], _in_shape(before, before.shape), x, others[0] if others else x, rate,
            _in_shape(after, before.shape), fmt.emin + _BIAS, fmt.precision - 1, stride,
            (of_layer.in_ulps, fields[0], fields[1]),
        )
        of_terms, of_after = [
            sampled_exponents(number, counted, stride)
            for (_, number), counted in zip(sides, fields, strict=True)
        ]
        self._exponents.add_counts(layer, fmt, of_terms)
        of_layer.count(parameter, moves, swallowed)
        if swallowed and of_layer.first is None:
            of_layer.first = self._place()
        return number_of(sides[0][0]), number_of(most), of_after

    def histograms(self) -> list[Histogram]:
        """Exponents of the updates of each layer."""
        return list(self._exponents)

    def summary(self) -> dict[str, dict[str, Any]]:
        """By layer: updates other than zero, those swallowed, their share, sizes in ulps.

        in_ulps       updates by the exponent of their size in units in the last place.
        step, line    where the first one was swallowed, in parameters of this format.
        parameters    the two counts by the parameter's name, where it has one.
        """
        return {layer: updates.row() for layer, updates in self._layers.items()}


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
