"""A product through a unit that runs time after time on the same memory."""

from __future__ import annotations

import numpy as np

from fpsim.products.by_unit.dispatch import accumulate, finish
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.types import Carrier, ElementFlags
from fpsim.state.draws import NO_PLACES, Draw, Places
from fpsim.state.publish import fold

__all__ = ["RepeatedProduct"]


class RepeatedProduct:
    """Of the operands a and b, into the memory of a result and of the flags of its elements.

    Shapes    as for `fpsim.products.by_unit.dispatch.multiply`.
    """

    __slots__ = ("_a", "_b", "_flags", "_places", "_settings", "_values")

    def __init__(
        self, settings: UnitSettings, a: Carrier, b: Carrier, values: Carrier, flags: ElementFlags
    ) -> None:
        self._settings, self._a, self._b = settings, a, b
        self._values, self._flags = values, flags
        self._places = settings.rounding_places(a.shape[-1])

    def run(self, seed: np.uint64, number: np.uint64) -> int:
        """Compute; the flags of all elements together."""
        settings, values, flags, places = self._settings, self._values, self._flags, NO_PLACES
        if settings.settings.rounding.stochastic:
            places = Places(
                Draw(seed, number, None), self._places, values.shape,
                wide=settings.settings.random_most > 16,
            )
        values.fill(0)
        flags.fill(0)
        accumulate(settings, self._a, self._b, values, flags, places, fresh=True)
        finish(settings, self._a.shape[-1], values, flags, places)
        return fold(flags)
