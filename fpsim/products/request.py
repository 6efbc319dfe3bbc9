"""What the public products through a unit share: checked choices before, flags and result after.

Source    docs/semantics.md §3 and §5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fpsim.array import Array
from fpsim.elementwise.apply import Carrier
from fpsim.products.by_unit.product import Marks, find_product
from fpsim.records.formats import Format
from fpsim.records.settings import SUBNORMALS
from fpsim.records.units import MatrixUnit, find_unit, with_partials
from fpsim.state.draws import Places
from fpsim.state.publish import Out, checked_target, fold_flags, published, wants_marks

if TYPE_CHECKING:
    from fpsim.context import Context

__all__ = ["Request"]

#: Sums of two scales of FP8 metadata, -32 … 31 each.
_SCALES = range(-64, 63)


class Request:
    """One product of a left and a right operand, given by their names.

    `open` once the result's shape is known, `publish` once it is computed: nothing of the context
    or of `out` changes before.
    """

    def __init__(
        self, name: str, unit: str | MatrixUnit, operands: dict[str, Array], *,
        context: Context | None, partials: Format | None, scale: int, subnormals: str | None,
        out: Out, stochastic_stores: bool = True,
    ) -> None:  # fmt: skip
        self.name, self.out = name, out
        _check_choices(scale, subnormals)
        self.unit = with_partials(find_unit(unit), partials)
        _check_inputs(self.unit, operands)
        left, right = operands.values()
        self.context = _result_context(self.unit, left, context)
        self.product = find_product(
            self.unit, left.format, right.format, self.context.settings, scale, subnormals,
            stochastic_stores,
        )  # fmt: skip

    def open(self, shape: tuple[int, ...], rounding: range) -> Places:
        """Memory of the result is checked; the random words of these rounding places."""
        self._target = checked_target(self.context, self.out, shape)
        self._places = Places(self.context, rounding, shape)
        return self._places

    def publish(
        self, values: Carrier, marks: Marks,
        operands: Callable[[tuple[int, ...]], Sequence[Carrier]],
    ) -> Array:  # fmt: skip
        """The result, unless a trap stops it, which shows the `operands` of its element."""
        raised = int(np.bitwise_or.reduce(marks, axis=None)) if marks.any() else 0
        each = marks if wants_marks(self.context) else None
        fold_flags(self.context, self.name, raised, values, each, operands)
        self._places.advance()
        return published(self.context, values, self._target, self.out)


def _check_choices(scale: int, subnormals: str | None) -> None:
    whole = isinstance(scale, (int, np.integer)) and not isinstance(scale, bool)
    if not whole or scale not in _SCALES:
        raise ValueError(
            f"scale={scale!r} is no sum of two metadata scales; use a whole number from "
            f"{_SCALES.start} to {_SCALES.stop - 1}"
        )
    if subnormals is not None and subnormals not in SUBNORMALS:
        raise ValueError(
            f"subnormals={subnormals!r} is not known; use one of {', '.join(SUBNORMALS)}"
        )


def _check_inputs(unit: MatrixUnit, operands: dict[str, Array]) -> None:
    for name, operand in operands.items():
        if not isinstance(operand, Array):
            raise TypeError(
                f"{name} is {type(operand).__name__}, not an Array; convert with ctx.array({name})"
            )
        if operand.format not in unit.inputs:
            names = " or ".join(str(f) for f in unit.inputs)
            raise TypeError(
                f"unit {unit} takes {names} inputs, got {operand.format} for {name}. "
                f"Convert it: {name}.to({unit.inputs[0].name.upper()})."
            )


def _result_context(unit: MatrixUnit, left: Array, context: Context | None) -> Context:
    if context is None:
        return left.context.in_format(unit.partials)
    if unit.partials.precision < context.format.precision:
        raise ValueError(
            f"partials={unit.partials} are narrower than the result in {context.format}; "
            f"use partials={context.format} or a {unit.partials} context"
        )
    return context
