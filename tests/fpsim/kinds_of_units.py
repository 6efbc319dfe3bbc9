"""One matrix unit of each kind, for the quick tier."""

from __future__ import annotations

import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.records.units import UNITS, MatrixUnit


def _kind(unit: MatrixUnit) -> tuple[object, ...]:
    """What chooses the steps of a unit; numbers of terms and digits only fill them in."""
    window = unit.window is not None
    stores = unit.partials, unit.join is not None, unit.calls is not None
    return unit.order, window, unit.cut, unit.rounding, *stores


#: The first name of each kind.
ONE_OF_EACH_KIND = sorted({_kind(UNITS[name]): name for name in sorted(UNITS)[::-1]}.values())
