"""What is looked at while a program runs: exponents of results and weights, updates, losses.

A front end calls the recorder beside its own work. Nothing here computes on the machine, draws
random bits, or changes a value, so a run that is recorded has the same bits as one that is not.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.array import Array
from fpsim.records.formats import Format
from fpsim.state.counts import Counts
from fpsim.state.processor import usual_arithmetic_in
from fpsim.state.tallies import ValueTally, tally_of
from ipu.run.account import split_name
from ipu.run.births.birth import Origins
from ipu.run.births.births import Births
from ipu.run.exponents import Exponents, Histogram
from ipu.run.operands import OperandStatistics
from ipu.run.updates import Updates

__all__ = ["Recorder", "merged"]

#: Exceptions whose first occurrence is told.
_EXCEPTIONS = ("OVERFLOW", "DIVBYZERO", "INVALID")


@usual_arithmetic_in()
class Recorder:
    """Observations of one run.

    counts     of the device, which stop while losses are not finite: all that follows a NaN is
               invalid, and where it came from would drown.
    results    exponents of the results of operations, by the names that a device counts under.
    updates    of parameters, by layer.
    operands   of products in blocks, by layer.
    losses     where backward passes began, by step of the optimiser, divided by the loss scale.
    scale      the loss scale that the program has now, as far as the front end sees it.
    scale_option    the option of the program by which it is set; "" of none.
    births     where numbers left their format, and what became of it.

    >>> recorder = Recorder()
    >>> recorder.loss(0, 2.0); recorder.loss(0, 4.0); recorder.loss(1, 1.0)
    >>> recorder.losses
    [3.0, 1.0]
    """

    def __init__(self, counts: Counts | None = None) -> None:
        self.counts = counts
        #: Backward passes whose loss was not finite; after one nothing counts until one is.
        self.uncounted = 0
        self.results = Exponents()
        self.updates = Updates(lambda: (self.births.where()[2], self.births.line()))
        self.operands = OperandStatistics()
        self.scale = 1.0
        self.scale_option = ""
        self.births = Births()
        #: Losses that were not computed, because nothing reads them.
        self.unread: set[str] = set()
        #: The largest number that a scale multiplies and that is no gradient, by name and format.
        self.bounds: dict[tuple[str, Format], float] = {}
        #: The largest size of an update beside the largest of its parameter, by step.
        self.jumps: dict[int, float] = {}
        self._weights = Exponents()
        self._losses: dict[int, list[float]] = {}
        self._first: dict[str, dict[str, Any]] = {}

    def result(self, name: str, array: Array, tally: ValueTally | None = None) -> None:
        """The result of an operation of a layer and direction, and its tally, if there is one."""
        tally = tally_of(array.carrier) if tally is None else tally
        self.results.add_counts(name, array.format, tally.exponents)

    def operation(
        self, step: int, name: str, operation: str, array: Array, operands: Sequence[Array],
        tally: ValueTally | None = None,
    ) -> None:
        """An operation of a layer and direction is done; the flags since the last one are its."""
        counts = self.counts
        if counts is None or counts.raised is None or not counts.is_on:
            return
        flags: dict[str, int] = {}
        self.births.invalid = ""
        for (tensor, verb, flag), n in counts.raised.items():
            if flag in _EXCEPTIONS and flag not in self._first:
                self._note_first(flag, step, tensor, verb, n, self.births.line())
            if tensor == counts.tensor:
                flags[flag] = flags.get(flag, 0) + n
                if flag == "INVALID":
                    self.births.invalid = verb
            else:
                self.births.untold(verb, (*split_name(tensor), step), flag, n)
        self.births.casts = [
            cast for (tensor, fmt), cast in counts.flushed.items()
            if tensor == counts.tensor and fmt != array.format]
        counts.flushed.clear()
        if counts.raised:
            counts.raised.clear()
        self.births.see(operation, (*split_name(name), step), array, operands, flags, tally)

    def entered(self, values: ArrayLike, array: Array) -> None:
        """Numbers of the host are in a format now."""
        if self.counts is not None and self.counts.is_on:
            self.births.entered(np.asarray(values), array)

    def wrote(
        self, where: tuple[str, str, int], operation: str, array: Array, operands: Sequence[Array]
    ) -> None:
        """A tensor of the program was written where nobody tells results; its flags are its own.

        where    its name, the direction and the step.
        """
        counts = self.counts
        if counts is None or not counts.raised or not counts.is_on:
            return
        flags: dict[str, int] = {}
        for (_, verb, flag), n in counts.raised.items():
            if flag in _EXCEPTIONS and flag not in self._first:
                layer, direction, step = where
                self._first[flag] = {
                    "flag": flag, "step": step, "layer": layer, "direction": direction,
                    "operation": verb, "times": n, "line": self.births.line(),
                }
            flags[flag] = flags.get(flag, 0) + n
        counts.raised.clear()
        counts.flushed.clear()
        self.births.casts = ()
        if not flags.keys().isdisjoint(_EXCEPTIONS):
            self.births.see(operation, where, array, operands, flags)

    def _note_first(
        self, flag: str, step: int, tensor: str, verb: str, n: int, line: str = ""
    ) -> None:
        layer, direction = split_name(tensor)
        self._first[flag] = {
            "flag": flag, "step": step, "layer": layer, "direction": direction,
            "operation": verb, "times": n, "line": line,
        }

    def weights(self, layer: str, key: Hashable, fmt: Format, values: NDArray[Any]) -> None:
        """The values of a parameter of a layer; later ones take the place of earlier ones.

        key    tells the parameters of a layer apart.
        """
        self._weights.replace((layer, key), fmt, values)

    def update(
        self, layer: str, key: Hashable, fmt: Format, before: NDArray[Any], term: NDArray[Any],
        after: NDArray[Any], parameter: str = "",
    ) -> None:
        """A parameter of a layer became `after`, which is `before` plus `term` in its format.

        parameter    its name in the layer; "": it has none.
        """
        self.move(layer, key, fmt, before, "add", (term,), 1.0, after, parameter)

    def move(
        self, layer: str, key: Hashable, fmt: Format, before: NDArray[Any], verb: str,
        operands: Sequence[NDArray[Any]], factor: float, after: NDArray[Any], parameter: str = "",
    ) -> None:
        """The same where the term is factor times what a verb makes of operands; see `Updates`."""
        term, largest, exponents = self.updates.move(
            layer, fmt, before, verb, operands, factor, after, parameter
        )
        if largest:
            step = self.births.where()[2]
            self.jumps[step] = max(self.jumps.get(step, 0.0), term / largest)
        self._weights.replace_counts((layer, key), fmt, exponents)

    def loss(self, step: int, value: float, origins: Origins | None = None) -> None:
        """A backward pass of a step began at this value; while it is not finite nothing counts.

        origins    the births that the loss comes from, where the front end knows them.
        """
        is_finite = math.isfinite(value)
        if not is_finite:
            self.births.ended(step, origins)
        self.uncounted += not is_finite
        if self.counts is not None:
            self.counts.is_on = is_finite
        self._losses.setdefault(step, []).append(value)

    def bound(self, name: str, fmt: Format, value: float) -> None:
        """A number in a format that a loss scale multiplies, and that is no gradient."""
        if math.isfinite(value):
            self.bounds[name, fmt] = max(abs(value), self.bounds.get((name, fmt), 0.0))

    def step_done(self, step: int, counts: Counts) -> None:
        """Note where exceptions occurred for the first time, which was not before this step."""
        for flag in _EXCEPTIONS:
            if flag in self._first:
                continue
            # Rows stand in the order in which operations first ran.
            row = next((key for key, counters in counts.items() if counters[flag]), None)
            if row is not None:
                self._note_first(flag, step, *row, counts[row][flag])

    @property
    def first(self) -> list[dict[str, Any]]:
        """The first of each kind of exception, in order of time."""
        return sorted(self._first.values(), key=lambda row: int(row["step"]))

    @property
    def losses(self) -> list[float]:
        """The mean loss of each step that had one."""
        return [float(np.mean(values)) for _, values in sorted(self._losses.items())]

    @property
    def losses_of_step(self) -> int:
        """The most losses of a step, of which the mean is told, as of its micro-batches."""
        return max(map(len, self._losses.values()), default=0)

    def weight_histograms(self) -> list[Histogram]:
        """The weights of each layer."""
        return merged(h._replace(name=h.name[0]) for h in self._weights)  # type: ignore[index]


def merged(histograms: Any) -> list[Histogram]:
    """One histogram for each name and format."""
    sums: dict[tuple[Hashable, Format], Histogram] = {}
    for h in histograms:
        before = sums.get((h.name, h.format))
        if before is None:
            sums[h.name, h.format] = h._replace(counts=dict(h.counts))
            continue
        for exponent, n in h.counts.items():
            before.counts[exponent] = before.counts.get(exponent, 0) + n
        sums[h.name, h.format] = before._replace(
            zeros=before.zeros + h.zeros, nonfinite=before.nonfinite + h.nonfinite
        )
    return list(sums.values())
