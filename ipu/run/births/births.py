"""The births of a run, and the memory of which elements come from them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.state.tallies import ValueTally
from ipu.run.births.absorption import absorbed_terms
from ipu.run.births.birth import Origins
from ipu.run.births.book import Book
from ipu.run.births.bounds import bounding_ones
from ipu.run.births.entering import entering_origins
from ipu.run.births.excursions import origins_of
from ipu.run.births.kinds import DIFFERENCE
from ipu.run.births.result import OperationResult
from ipu.run.births.usual import origins_of_usual
from ipu.run.births.verbs import ADDITIONS, CHOOSING, ENTERING, base_of
from ipu.run.births.zeros import differences

__all__ = ["Births"]


class Births(Book):
    """The births of a run, in order of time.

    >>> from fpsim import BINARY16, Context
    >>> births, half = Births(), Context(BINARY16, count=True)
    >>> x, y = half.array([6e4, 1.0]), half.array([6e4, 1.0])
    >>> births.see("add", ("net", "forward", 0), half.add(x, y), (x, y), {"OVERFLOW": 1})
    >>> [(b.kind, b.layer, b.count) for b in births]
    [('infinity', 'net', 1)]
    """

    def __init__(self) -> None:
        super().__init__()
        #: By identity of the carrier, whose reference tells when it is gone.
        self._origins: dict[int, tuple[weakref.ref[Any], Origins]] = {}
        #: Of the first loss that is not finite, and its step.
        self.symptom: tuple[int, Origins] | None = None

    @property
    def has_any(self) -> bool:
        """Whether anything was born, or may be told of a birth."""
        return bool(self._births or self._origins)

    def symptom_row(self) -> dict[str, Any]:
        """The first loss that is not finite: its step, and the births that it comes from."""
        if self.symptom is None:
            return {}
        step, origins = self.symptom
        return {"step": step, "births": {kind: birth.number for kind, birth in origins.items()}}

    # Memory -----------------------------------------------------------------------------------

    def of(self, array: Array) -> Origins:
        """What the elements of an array come from; of a view, those of its base."""
        if not self._origins:
            return {}
        carrier: Any = array.carrier
        while carrier is not None:
            entry = self._origins.get(id(carrier))
            if entry is not None and entry[0]() is carrier:
                return entry[1]
            carrier = getattr(carrier, "base", None)
        return {}

    def has_origins(self, array: Array) -> bool:
        """Whether elements of an array come from births."""
        return bool(self.of(array))

    def note(self, array: Array, origins: Origins) -> None:
        """The elements of an array come from these births."""
        carrier = array.carrier
        key = id(carrier)
        if origins:
            self._origins[key] = weakref.ref(carrier), origins
        else:
            self._origins.pop(key, None)

    # Events -----------------------------------------------------------------------------------

    def moved(self, operation: str, array: Array, operands: Sequence[Array]) -> None:
        """The elements of a result are operands' elements, of an operation that rounds nothing."""
        if not self._origins:
            return
        inherited = [self.of(x) for x in operands]
        origins = bounding_ones(operation, array, inherited)
        difference = next((o[DIFFERENCE] for o in inherited if DIFFERENCE in o), None)
        if difference is not None and not np.asarray(array.carrier).all():
            origins[DIFFERENCE] = difference
        if origins:
            self.note(array, {**self.of(array), **origins})

    def entered(self, values: NDArray[Any], array: Array) -> None:
        """Numbers from outside are in a format now: what they lost is a birth that they carry."""
        origins = entering_origins(self, values, array)
        if origins is not None:
            self.note(array, origins)

    def see(
        self, operation: str, where: tuple[str, str, int], array: Array,
        operands: Sequence[Array], flags: Mapping[str, int], tally: ValueTally | None = None,
    ) -> None:
        """An operation has this result, of these operands, and raised flags on so many elements.

        where    layer, direction and step.
        tally    of the result; None: it is made where it is needed.
        """
        inherited = [self.of(x) for x in operands]
        is_sum = len(operands) in (1, 2) and base_of(operation) in ADDITIONS
        if not flags and not is_sum and not any(inherited):
            return
        for birth in (birth for origins in inherited for birth in origins.values()):
            if birth.operation == ENTERING:
                birth.reader = birth.reader or where[0]
        ones = bounding_ones(operation, array, inherited) if base_of(operation) in CHOOSING else {}
        if not is_sum or where[1] == "backward":
            origins = origins_of_usual(
                self, operation, where, array, operands, inherited, flags, tally
            )
            if origins is not None:
                self.note(array, origins | ones)
                return
        result = OperationResult(self, operation, where, array, operands, inherited, flags, tally)
        origins = origins_of(result) | ones
        if is_sum and where[1] != "backward":
            origins |= {} if self.is_update else absorbed_terms(result)
            if where[1] != "optimizer":
                origins |= differences(result)
        self.note(array, origins)

    def ended(self, step: int, origins: Origins | None = None) -> None:
        """A loss is not finite; the first is the symptom whose cause is sought."""
        if self.symptom is None:
            self.symptom = step, origins or {}
