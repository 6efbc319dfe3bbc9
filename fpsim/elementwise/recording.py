"""Operations of a device, noted as they run.

What may become a program (`fpsim.elementwise.recorded_program`, `fpsim.products.row_program`) are
operations on what was given, on results before, and on single numbers; of anything else it is noted
that not all is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fpsim.elementwise.code_tables import CodeTable
from fpsim.kernels.elementwise.tally import TALLIED, tally_numbers
from fpsim.records.settings import ZERO_OR_NORMAL, Settings
from fpsim.records.types import Carrier
from fpsim.state.counts import Counts
from fpsim.state.memory import flat_in_memory

__all__ = [
    "FUNCTION", "LARGEST", "OPERATION", "POSITIVE", "SAME", "SQUARES", "SUM", "TABLE",
    "RecordedOperation", "Recording",
]

#: Kinds of operations: of one kernel; a function; sums and the largest number along axes; a cast
#: that changes no number; results from a table of codes; numbers that are zero where not positive.
OPERATION, FUNCTION, SUM, SQUARES, LARGEST, SAME, TABLE, POSITIVE = (
    "operation", "function", "sum", "squares", "largest", "same", "table", "positive"
)


class RecordedOperation(NamedTuple):
    """An operation: its settings, operands, result and flags, as it ran.

    is_single    the result is one number.
    axes         of a sum or the largest number.
    table        where the results come from one.
    counted      the name that it counts under; "" where operations are not counted, or this is not.
    """

    name: str
    settings: Settings
    operands: tuple[Carrier, ...]
    result: Carrier
    flags: int
    is_single: bool
    kind: str = OPERATION
    axes: tuple[int, ...] = ()
    table: CodeTable | None = None
    counted: str = ""

    @property
    def is_drawn(self) -> bool:
        """Whether chance has rounded the result."""
        return self.settings.rounding.stochastic and self.flags != 0

    @property
    def numbers(self) -> tuple[int, ...]:
        """What a single result counts: zeros, subnormals and elements of each flag."""
        zeros, subnormals = tally_numbers(
            flat_in_memory(self.result), np.float32(self.settings.format.smallest_normal)
        )
        return (zeros, subnormals, *[self.flags >> f & 1 for f in range(TALLIED - 2)])


class LookedAt(NamedTuple):
    """A result that is looked at when so many operations have run."""

    n_operations: int
    result: Carrier


class Recording:
    """Operations in order; see `RecordedProgram.of` and `RowProgram.of`.

    counts   of the device, where operations are counted: until `close` is called all that counts
             must belong to an operation that is noted behind it.
    """

    def __init__(self, counts: Counts | None = None) -> None:
        self._counts = counts
        if counts is not None:
            self._tensor, counts.noted = counts.tensor, []
        self.operations: list[RecordedOperation] = []
        self.looked_at: list[LookedAt] = []
        #: Whether all that ran is noted.
        self.is_whole = True
        #: Whether all of it are operations of one kernel.
        self.is_elementwise = True

    def note(
        self, name: str, settings: Settings, operands: Sequence[Carrier], result: Carrier,
        flags: int, kind: str = OPERATION, axes: tuple[int, ...] = (),
        table: CodeTable | None = None,
    ) -> None:
        """An operation has run."""
        is_single = result.shape == ()
        self.operations.append(RecordedOperation(
            name, settings, tuple(operands), result, flags, is_single, kind, axes, table,
            self._counted_as(settings, result),
        ))
        self.is_elementwise &= kind == OPERATION
        fits = settings.subnormals != ZERO_OR_NORMAL and result.dtype == np.float32
        if not fits or any(operand.dtype != np.float32 for operand in operands):
            self.is_whole = False
        if is_single and any(x is result for x in operands):
            self.is_whole = False

    def refuse(self) -> None:
        """Something else has run."""
        self.is_whole = False

    def look(self, result: Carrier) -> None:
        """This result is looked at now."""
        self.looked_at.append(LookedAt(len(self.operations), result))

    def close(self) -> None:
        """Nothing more is noted."""
        if self._counts is not None:
            self.is_whole &= not self._counts.noted
            self._counts.noted = None

    def _counted_as(self, settings: Settings, result: Carrier) -> str:
        """The name that the operation which has just run counted under."""
        if self._counts is None or not self._counts.noted:
            return ""
        row, *others = self._counts.noted
        self._counts.noted.clear()
        is_its = row.size == result.size and row.format == settings.format
        if others or not is_its or row.tensor != self._tensor:
            self.is_whole = False
        return row.operation
