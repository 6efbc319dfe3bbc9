"""Settings of a product through a unit: its record with the formats and policies of one call.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fpsim.elementwise.constants import KernelPlan, exact_width, plan
from fpsim.kernels.by_unit.general import UnitParameters
from fpsim.kernels.by_unit.outputs import output_kernel
from fpsim.kernels.random.words import NO_WORDS
from fpsim.records.formats import BINARY32, Format
from fpsim.records.rounding import RNE, RTZ
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags
from fpsim.records.units import MatrixUnit
from fpsim.state.draws import Places

__all__ = ["Store", "UnitSettings", "nearest"]


@dataclass(frozen=True)
class Store:
    """One rounding of partials or of the result, as constants for lanes of 32 and of 64 bits."""

    narrow: KernelPlan
    wide: KernelPlan

    def __call__(
        self, values: Carrier, element_flags: ElementFlags, place: int, places: Places
    ) -> int:
        """Values (rows, columns) rounded at one place; their flags together."""
        plan, shape = self.narrow, (1, values.size)
        words, random = NO_WORDS, _NOTHING
        if places.low:
            words = places.words(place, values.shape)
        elif places.active:
            _, step, seed, operation, first, passed = places.random
            random = step, seed, operation, first, place + passed
            if step != values.shape[1]:
                shape = values.shape
        wide = places.wide and plan.stochastic
        loop = output_kernel(plan.mode, places.low, plan.residual, wide)
        flags = int(loop(
            values.reshape(-1), element_flags.reshape(-1), shape, words, random, plan.constants
        ))
        if plan.one_zero:
            values[values == 0] = 0.0
        return flags


#: Numbers of outputs where no words are made.
_NOTHING = (0, np.uint64(0), np.uint64(0), 0, 0)


@dataclass(frozen=True, eq=False)
class UnitSettings:
    """A unit with the formats and policies of one product; compared by identity, which is fast.

    Without `stochastic_stores` partials are stored to nearest even where the context rounds
    stochastically; the last rounding is the context's in any case.
    """

    unit: MatrixUnit
    a: Format
    b: Format
    settings: Settings
    scale: int = 0
    subnormals: str | None = None
    stochastic_stores: bool = True

    @cached_property
    def policy(self) -> str:
        """What happens to binary32 subnormals of the unit."""
        if self.subnormals is not None:
            return self.subnormals
        return self.settings.subnormals if self.settings.format == BINARY32 else "keep"

    @cached_property
    def kernel_call(self) -> UnitParameters:
        """The record as the general kernel reads it."""
        unit = self.unit
        join, products = unit.join, unit.products
        return UnitParameters(
            terms=unit.terms,
            calls=unit.chain,
            window=-1 if unit.window is None else unit.window,
            sticky=int(unit.cut == "sticky"),
            fraction=self.a.precision + self.b.precision - 2,
            scale=self.scale,
            precision=unit.accumulator.precision,
            emin=unit.accumulator.emin,
            emax=unit.accumulator.emax,
            to_zero=int(unit.rounding == RTZ),
            join=join.precision if join else 0,
            join_emin=join.emin if join else 0,
            join_emax=join.emax if join else 0,
            join_flush=self._flushes(join),
            product=products.precision if products else 0,
            product_emin=products.emin if products else 0,
            product_emax=products.emax if products else 0,
            product_flush=self._flushes(products),
            flush_in=int(unit.partials == BINARY32 and self.policy == "flush_both"),
            flush_out=self._flushes(unit.accumulator),
            tiny_before=int(self.settings.tininess == "before"),
            loud_nan=int(self.settings.quiet_nan_raises),
        )

    def _flushes(self, fmt: Format | None) -> int:
        """Whether tiny sums in a format become zero: in one with the exponents of binary32."""
        return int(fmt is not None and fmt.emin == BINARY32.emin and self.policy != "keep")

    @cached_property
    def store(self) -> Store | None:
        """The rounding of partials narrower than the sums, after every pass."""
        return None if self.unit.calls is None else self._narrowing

    @cached_property
    def at_the_end(self) -> Store | None:
        """The same where a pass is the whole of K: after the last call."""
        return self._narrowing if self.unit.calls is None else None

    @cached_property
    def _narrowing(self) -> Store | None:
        if not self.unit.stores:
            return None
        settings = self.settings
        if settings.rounding.stochastic and not self.stochastic_stores:
            settings = settings.replace(rounding=RNE)
        return _store(settings, self.unit.partials)

    @cached_property
    def final(self) -> Store | None:
        """The last rounding, into a result narrower than the partials."""
        fmt = self.settings.format
        return _store(self.settings, fmt) if fmt != self.unit.partials else None

    @cached_property
    def reduced(self) -> Store | None:
        """The rounding of a binary32 sum of partials into the result."""
        fmt = self.settings.format
        return _store(self.settings, fmt) if fmt != BINARY32 else None

    def depth(self, k: int) -> int:
        """k products and the zeros that make them whole passes."""
        return -(-k // self.unit.channels) * self.unit.channels

    def piece(self, k: int) -> int:
        """Terms that pieces of k products are multiples of; k where their order is that of all."""
        unit = self.unit
        whole = unit.calls is None and unit.order != "ascending"
        return max(1, self.depth(k)) if whole else unit.channels

    def passes(self, k: int) -> int:
        """Passes over k products."""
        return min(k, 1) if self.unit.calls is None else self.depth(k) // self.unit.channels

    def short(self, n: int) -> UnitSettings:
        """The same for passes of n terms: without the calls and terms that would be zeros.

        Itself where the zeros matter: they decide the order of terms, or a call of zeros alone
        changes its partial, since it cuts digits off or turns -0, left by underflow, into +0.
        """
        unit = self.unit
        calls = -(-n // unit.terms)
        if unit.calls is None or unit.taps > 1 or unit.order != "ascending":
            return self
        if calls < unit.calls and not self._keeps_partials:
            return self
        if n not in self._short:
            shorter = dataclasses.replace(unit, terms=min(n, unit.terms), calls=calls)
            self._short[n] = dataclasses.replace(self, unit=shorter)
        return self._short[n]

    @cached_property
    def by_taps(self) -> UnitSettings:
        """The same for passes of one tap, without those that only fill up a row of a kernel.

        Itself where a pass is more than its calls one after the other, or where zeros matter.
        """
        unit = self.unit
        channels = unit.channels // unit.taps
        chained = unit.join is None and unit.order == "ascending" and channels % unit.terms == 0
        if unit.taps == 1 or unit.calls is None or not chained:
            return self
        if self.store is not None or not self._keeps_partials:
            return self
        one = dataclasses.replace(unit, taps=1, calls=channels // unit.terms)
        return dataclasses.replace(self, unit=one)

    @property
    def skips_zeros(self) -> bool:
        """Whether a pass of zeros by numbers may be left out, which changes its partial nowhere.

        A partial stored in a narrower format may be -0, which a pass of zeros turns into +0.
        """
        unit = self.unit
        whole = unit.calls is not None and unit.taps == 1 and self.store is None
        return whole and self._keeps_partials

    @property
    def _keeps_partials(self) -> bool:
        """Whether every partial of a call comes out of a call of zeros as it went in."""
        sums, window = self.unit.accumulator, self.unit.window
        unit_of_sums = self.scale + sum(f.emin - f.precision + 1 for f in (self.a, self.b))
        return unit_of_sums >= sums.emin and (window is None or window >= sums.precision - 1)

    @cached_property
    def _short(self) -> dict[int, UnitSettings]:
        """Shorter passes that were asked for: settings are compared by identity."""
        return {}

    def rounding_places(self, k: int) -> range:
        """Rounding places by the context: the stores of an output, then the last rounding."""
        places = self._places.get(k)
        if places is None:
            n = self.passes(k)
            stores = self._narrowing and self.stochastic_stores
            places = self._places[k] = range(0 if stores else n, n + 1 if self.final else n)
        return places

    @cached_property
    def _places(self) -> dict[int, range]:
        """Rounding places of the depths that were asked for."""
        return {}


@lru_cache(maxsize=256)
def _store(settings: Settings, fmt: Format) -> Store:
    """Partials read out follow the overflow policy also where the accumulator is infinite."""
    overflow = settings.overflow
    rule = Settings(
        fmt, settings.rounding, overflow=overflow,
        subnormals=settings.subnormals if settings.format == fmt else "keep",
        tininess=settings.tininess, infinite_input="keep" if overflow == "infinity" else overflow,
        quiet_nan_raises=settings.quiet_nan_raises,
    )
    width = exact_width("convert", rule, 4)
    return Store(plan("convert", rule, width), plan("convert", rule, 64))


@lru_cache(maxsize=16)
def nearest(fmt: Format) -> Store:
    """The rounding of a unit's own accumulator: to nearest even, infinity on overflow."""
    return _store(Settings(fmt), fmt)
