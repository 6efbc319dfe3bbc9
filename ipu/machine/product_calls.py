"""A product that a device was asked for: what computes it, and what its row in the ledger is.

Source    docs/semantics.md §5 (cost).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fpsim.array import Array
from fpsim.context import Context
from fpsim.records.formats import Format
from fpsim.records.types import Shape
from fpsim.records.units import MatrixUnit
from ipu.machine.cost.rows import WorkOf

__all__ = ["Compute", "ProductCall"]

#: A product in the context of its result.
Compute = Callable[[Context], Array]


class ProductCall(NamedTuple):
    """One call of a verb that multiplies.

    work_of    as for `ipu.machine.cost.rows.ledger_row`.
    options    stride and groups of a convolution.
    parts      of the tiles that K is split over.
    """

    verb: str
    unit: MatrixUnit
    operands: tuple[Array, Array]
    compute: Compute
    work_of: WorkOf
    options: tuple[object, ...] = ()
    parts: int = 1

    def key(self, shape: Shape, fmt: Format) -> tuple[object, ...]:
        """What its row follows from; shape and format are those of the result."""
        x, y = self.operands
        unit, inputs = self.unit, x.context.core.settings.format
        return (
            self.verb, unit.name, unit.channels, inputs.name, fmt.name, x.shape, y.shape, shape,
            self.options, self.parts,
        )  # fmt: skip
