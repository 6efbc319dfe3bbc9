"""What products in blocks leave on a device: scales, who is told of operands, what is outside."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from fpsim.records.formats import Format
from ipu.machine.delayed import DelayedScales

__all__ = ["BlockState"]


class BlockState:
    """The state of the recipes of a device.

    delayed    scales of tensors that follow from the steps before; a checkpoint holds their state.
    observe    called with each `ipu.ops.dense.OperandEvent`; see `ipu.run`.
    outside    products that a recipe does not cover: how often, by layer and operation.
    """

    def __init__(self) -> None:
        self.delayed = DelayedScales()
        self.observe: Callable[[Any], object] | None = None
        self.outside: dict[tuple[str, str], int] = {}

    def note_outside(self, layer: str, operation: str, recipe: object, fmt: Format) -> None:
        """A product is none of those that a recipe covers; a warning says so once for each kind."""
        key = layer, operation
        is_new = all(name != operation for _, name in self.outside)
        self.outside[key] = self.outside.get(key, 0) + 1
        if is_new:
            warnings.warn(
                f"recipe={recipe} covers products of an activation with a weight; {operation} of "
                f"{layer or 'the program'} is none and computes in {fmt}, as do all others of this "
                "kind (the report lists them)", RuntimeWarning, stacklevel=3,
            )
