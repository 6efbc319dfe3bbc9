"""A site: where operations of a program are computed, and what they share there.

A front end looks the site up before an operation, which may then ask for its formats, note a
constant, and draw random bits at the run's place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from ipu.learn.policy import Policy
from ipu.machine.delayed import Moment
from ipu.machine.device import Device
from ipu.ops.dense import LayerRecipe
from ipu.run.account import counted_name
from ipu.run.births.kinds import ONE, SATURATED, ZERO

if TYPE_CHECKING:
    from ipu.run.run import Run

__all__ = ["Site"]

#: What a constant is from then on that changes so in a format.
_EXCURSIONS = {"zero": ZERO, "overflow": SATURATED, "one": ONE}


@dataclass(slots=True)
class Site:
    """A layer and direction of a run.

    policy       of the layer.
    name         under which the device counts its operations.
    is_update    the optimiser computes: tensors of 32 bits hold the format of parameters.
    activations  in which layers hold values and gradients.
    """

    run: Run
    policy: Policy
    layer: str
    direction: str
    device: Device = field(init=False)
    name: str = field(init=False)
    is_update: bool = field(init=False)
    activations: Format = field(init=False)

    def __post_init__(self) -> None:
        self.device = self.run.device
        self.name = counted_name(self.layer, self.direction)
        self.is_update = self.direction == "optimizer"
        self.activations = self.policy.activations

    @property
    def ties(self) -> str:
        """Of maximum pooling: "first" or "all"."""
        return self.run.options.ties

    @property
    def found_inf(self) -> str:
        """What loss scalers look at: "values" or "status"."""
        return self.run.options.found_inf

    def wide(self, x: Array) -> Array:
        """x in binary32."""
        return self.device.cast(x, BINARY32)

    @property
    def line(self) -> str:
        """FILE:LINE of the user's program, where the front end knows it."""
        return ""

    @property
    def recipe(self) -> LayerRecipe | None:
        """The recipe of the layer at the moment that computes; None: it has none."""
        recipe = self.policy.recipe
        if recipe is None or self.direction == "optimizer":
            return None
        place = self.run.place
        is_training = self.direction in ("forward", "backward")
        return LayerRecipe(recipe, self.layer, Moment(place.step, place.micro_batch, is_training))

    def note_outside(self, operation: str, fmt: Format | None = None) -> None:
        """Tell of a product that no recipe covers and that computes in fmt; None: the layers'."""
        recipe = self.policy.recipe
        if recipe is not None and self.direction != "optimizer":
            fmt = fmt or self.activations
            self.device.blocks.note_outside(self.layer, operation, recipe, fmt)

    def note_constant(
        self, fmt: Format, value: float, change: str, rounded: Array | None = None
    ) -> None:
        """A number did not fit into a format, in which it is `rounded`."""
        self.run.account.constant(self.layer, self.direction, fmt, value, change, self.line)
        kind = _EXCURSIONS.get(change)
        if rounded is not None and kind is not None and self.run.is_counting:
            births = self.run.recorder.births
            where = self.layer, self.direction, self.run.place.step
            birth = births.constant(where, fmt, value, change, self.line)
            births.note(rounded, {kind: birth})
