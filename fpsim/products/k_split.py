"""Products whose K is split over tiles, and the reduction of their partial results.

K is cut in whole passes, as evenly as that goes, the longer ranges first; each range is a product
of its own that starts from zero and leaves partials. A reduction adds the partials of an output in
binary32 in the order of the ranges, from the first one on, and rounds the sum once into the result.

Not modelled: reductions in several stages, which poplibs plans from sixteen ranges on (each stage
stores the partials' format; how many ranges it adds is chosen by cost).

Source    poplibs ReduceAdd.cpp, ConvReducePlan.cpp; docs/semantics.md §2 (places) and §5.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np

from fpsim.elementwise.apply import apply
from fpsim.products.by_unit.dispatch import accumulate, round_outputs
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY32
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags, Shape
from fpsim.records.units import MatrixUnit
from fpsim.state.draws import Places

__all__ = ["Split", "ranges"]

#: What a unit reports.
_REPORTED = np.uint8(Flags.INVALID | Flags.OVERFLOW)


class Split:
    """A product of K terms in so many parts."""

    def __init__(self, settings: UnitSettings, k: int, parts: int) -> None:
        self.settings = settings
        self.cuts = ranges(k, parts, settings.unit)
        self.passes = sum(settings.passes(len(cut)) for cut in self.cuts)
        self.last = settings.final if parts == 1 else settings.reduced

    @property
    def rounding_places(self) -> range:
        """Those of the stores of all parts, then the last rounding."""
        stores = self.settings.store or self.settings.at_the_end
        return range(0 if stores else self.passes, self.passes + (self.last is not None))

    def multiply(
        self, a: Carrier, b: Carrier, shape: Shape, places: Places
    ) -> tuple[Carrier, ElementFlags]:
        """Values and flags of the reduced result."""
        total, flags = np.zeros(shape, np.float32), np.zeros(shape, np.uint8)
        place = 0
        for cut in self.cuts:
            terms = slice(cut.start, cut.stop)
            partial, part_flags = self._part(
                a[..., terms], b[..., terms, :], shape, places.part(place=place)
            )
            flags |= part_flags
            total = self._added(total, partial, flags) if cut.start else partial
            place += self.settings.passes(len(cut))
        if self.last:
            round_outputs(self.last, self.passes, total, flags, places)
        return total, flags

    def _part(
        self, a: Carrier, b: Carrier, shape: Shape, places: Places
    ) -> tuple[Carrier, ElementFlags]:
        """The partials of one range and their flags."""
        partial, flags = np.zeros(shape, np.float32), np.zeros(shape, np.uint8)
        accumulate(self.settings, a, b, partial, flags, places, fresh=True)
        if self.settings.at_the_end:
            round_outputs(self.settings.at_the_end, 0, partial, flags, places)
        return partial, flags

    def _added(self, total: Carrier, partial: Carrier, flags: ElementFlags) -> Carrier:
        """One addition of the reduction; its flags are added to `flags`."""
        sum_flags = np.zeros(flags.shape, np.uint8)
        total, _ = apply("add", (total, partial), _of_sums(self.settings), element_flags=sum_flags)
        flags |= sum_flags & _REPORTED
        return total


@lru_cache(maxsize=64)
def _of_sums(settings: UnitSettings) -> Settings:
    """Settings of the additions of partials."""
    policies = settings.settings
    return Settings(
        BINARY32, subnormals=settings.policy, tininess=policies.tininess,
        quiet_nan_raises=policies.quiet_nan_raises,
    )


def ranges(k: int, parts: int, unit: MatrixUnit) -> list[range]:
    """Where K is cut: whole passes (calls, where a pass is the whole of K), longer ranges first.

    >>> from fpsim.records.units import find_unit
    >>> [len(cut) for cut in ranges(39, 3, find_unit("V100_F16_F32"))]
    [16, 12, 11]
    """
    passes = -(-k // unit.channels)
    if isinstance(parts, bool) or not isinstance(parts, int) or not 1 <= parts <= max(1, passes):
        raise ValueError(
            f"parts={parts!r} of a K of {k}; {unit} takes {unit.channels} at a time, so use 1 to "
            f"{max(1, passes)}"
        )
    shortest, longer = divmod(passes, parts)
    sizes = [shortest + (i < longer) for i in range(parts)]
    ends = [min(int(end) * unit.channels, k) for end in np.cumsum(sizes)]
    return [range(begin, end) for begin, end in pairwise([0, *ends])]
