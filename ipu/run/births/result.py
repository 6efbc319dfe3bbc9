"""One result of an operation, beside its operands and what they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.state.tallies import ValueTally, tally_of
from ipu.run.births.birth import Birth, Origins, oldest
from ipu.run.births.book import Book

__all__ = ["OperationResult"]


@dataclass
class OperationResult:
    """One result beside its operands.

    where        layer, direction and step of its operation.
    inherited    the births that the elements of each operand come from.
    flags        that the operation raised, on so many elements.
    """

    book: Book
    operation: str
    where: tuple[str, str, int]
    array: Array
    operands: Sequence[Array]
    inherited: Sequence[Origins]
    flags: Mapping[str, int]
    tally: ValueTally | None

    def __post_init__(self) -> None:
        self.values: NDArray[Any] = np.asarray(self.array.carrier)
        self.fmt = self.array.format
        if self.values.dtype != np.float32:
            self.tally = None  # which is of binary32
        elif self.tally is None:
            self.tally = tally_of(self.values)

    def n_zeros(self) -> int:
        """How many elements are zero."""
        return self.tally.zeros if self.tally else int(np.count_nonzero(self.values == 0))

    def is_usual(self) -> bool:
        """Whether all values are known to be numbers smaller than the largest one."""
        return self.tally is not None and self.tally.is_below_largest(self.fmt)

    def before(self, kind: str) -> Birth | None:
        """The birth of this kind among those of the operands; a constant before others."""
        return oldest(self.all_before(kind))

    def all_before(self, kind: str) -> list[Birth]:
        """The births of this kind that operands have."""
        return [origins[kind] for origins in self.inherited if kind in origins]
