"""A product through a unit that runs time after time on the same memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fpsim.kernels.by_unit.outputs import output_kernel
from fpsim.kernels.random.words import NO_WORDS
from fpsim.products.by_unit.dispatch import accumulate, finish
from fpsim.products.by_unit.unit_settings import Store, UnitSettings
from fpsim.products.by_unit.window import RepeatedWindow
from fpsim.records.types import Carrier, ElementFlags
from fpsim.state.draws import NO_PLACES, NO_RANDOM, Draw, Places
from fpsim.state.publish import fold
from fpsim.state.threads import run_blocks

__all__ = ["RepeatedProduct"]

#: Results whose last rounding one thread computes in any case.
_FEW = 1 << 15


class _RepeatedStore:
    """A rounding of all outputs at one place."""

    __slots__ = (
        "_arrays", "_constants", "_flags", "_is_drawn", "_loop", "_place", "_step", "_values",
    )

    def __init__(
        self, store: Store, values: Carrier, flags: ElementFlags, place: int, *, wide: bool
    ) -> None:
        plan, columns = store.narrow, values.shape[-1]
        self._is_drawn, self._place, self._step = plan.stochastic, place, columns
        self._loop = output_kernel(plan.mode, False, plan.residual, wide and plan.stochastic)
        self._values, self._flags = values.reshape(-1, columns), flags.reshape(-1, columns)
        self._arrays = values.reshape(-1), flags.reshape(-1), (1, values.size), NO_WORDS
        self._constants = plan.constants

    def run(self, seed: np.uint64, number: np.uint64) -> None:
        random = (0, np.uint64(0), np.uint64(0), 0, 0)
        if self._is_drawn:
            random = self._step, seed, number, 0, self._place
        if self._values.size < 2 * _FEW:
            self._loop(*self._arrays, random, self._constants)
            return
        work, smallest = partial(self._part, random), max(1, _FEW // self._step)
        run_blocks(work, 0, len(self._values), smallest, 16)

    def _part(self, random: Any, begin: int, end: int) -> int:
        """Some rows of outputs."""
        values = self._values[begin:end].reshape(-1)
        flags = self._flags[begin:end].reshape(-1)
        step, seed, number, _, place = random
        random = step, seed, number, begin * step, place
        self._loop(values, flags, (1, values.size), NO_WORDS, random, self._constants)
        return 0


class RepeatedProduct:
    """Of the operands a and b, into the memory of a result and of the flags of its elements.

    Shapes    as for `fpsim.products.by_unit.dispatch.multiply`.
    """

    __slots__ = ("_a", "_b", "_flags", "_places", "_settings", "_stores", "_values", "_window")

    def __init__(
        self, settings: UnitSettings, a: Carrier, b: Carrier, values: Carrier, flags: ElementFlags
    ) -> None:
        self._settings, self._a, self._b = settings, a, b
        self._values, self._flags = values, flags
        self._places = settings.rounding_places(a.shape[-1])
        self._stores = self._last_stores()
        self._window: RepeatedWindow | None = None
        if self._stores is not None:
            self._window = RepeatedWindow.of(settings, a, b, values, flags)

    def _last_stores(self) -> list[_RepeatedStore] | None:
        """The roundings after all calls; None where another way rounds them."""
        settings, places = self._settings, self._places
        wide = settings.settings.random_most > 16
        stores = settings.store, settings.at_the_end, settings.final
        if any(store is not None and store.narrow.one_zero for store in stores):
            return None
        last = [(settings.at_the_end, 0), (settings.final, places[-1] if places else 0)]
        return [
            _RepeatedStore(store, self._values, self._flags, place, wide=wide)
            for store, place in last if store is not None
        ]

    def run(self, seed: np.uint64, number: np.uint64) -> int:
        """Compute; the flags of all elements together."""
        self._values.fill(0)
        self._flags.fill(0)
        if not self._run_window(seed, number):
            self._run_any(seed, number)
        return fold(self._flags)

    def _run_window(self, seed: np.uint64, number: np.uint64) -> bool:
        if self._window is None or self._stores is None:
            return False
        random: Any = NO_RANDOM
        if self._places and self._settings.settings.rounding.stochastic:
            random = NO_RANDOM[0], self._values.shape[-1], seed, number, 0, 0
        if not self._window.run(random):
            return False
        for store in self._stores:
            store.run(seed, number)
        return True

    def _run_any(self, seed: np.uint64, number: np.uint64) -> None:
        settings, values, flags, places = self._settings, self._values, self._flags, NO_PLACES
        if settings.settings.rounding.stochastic:
            places = Places(
                Draw(seed, number, None), self._places, values.shape,
                wide=settings.settings.random_most > 16,
            )
        accumulate(settings, self._a, self._b, values, flags, places, fresh=True)
        finish(settings, self._a.shape[-1], values, flags, places)
