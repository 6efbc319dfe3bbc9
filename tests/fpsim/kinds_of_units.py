"""One matrix unit of each kind, for the quick tier."""

from __future__ import annotations

import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.records.units import UNITS, MatrixUnit


def _kind(unit: MatrixUnit) -> tuple[object, ...]:
    """What chooses the steps of a unit; numbers of terms and digits only fill them in."""
    window = unit.window is not None
    stores = unit.partials, unit.join is not None, unit.calls is not None
    return unit.order, window, unit.cut, unit.rounding, *stores


def _usual(name: str) -> tuple[bool, str]:
    """The order of names: AMP and V100, whose kernels most tests use, come before the others."""
    return not name.startswith(("AMP_", "V100_")), name


#: The first name of each kind.
ONE_OF_EACH_KIND = sorted(
    {_kind(UNITS[name]): name for name in sorted(UNITS, key=_usual, reverse=True)}.values()
)
