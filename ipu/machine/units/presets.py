"""Readings of what is not known about the IPU's matrix units: one record, four presets.

`window` (default) cuts addends to 31 fraction digits, `sticky` rounds them to odd there, `exact`
cuts nothing, and `sequential_f32` is poplibs' CPU reference: term by term in binary32, the partial
last. Where one pass takes all of K its partial comes first, as the accumulator.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fpsim.records.evidence import Evidence
from fpsim.records.formats import BINARY32
from fpsim.records.units import MatrixUnit

__all__ = ["NEAREST", "PRESETS", "UNKNOWN", "WIDTHS", "with_presets"]

PRESETS = ("window", "sticky", "exact", "sequential_f32")

WIDTHS = (Evidence.INFERRED, "adder input of 33 bits, 2 before the point (TAMP_* constants)")
UNKNOWN = (Evidence.ASSUMED, "no source; presets window, sticky, exact")
NEAREST = (Evidence.ASSUMED, "nearest even into the binary32 accumulator after every call")
#: What the readings that are not the default rest on.
_UNCUT = (Evidence.ASSUMED, "a reading to compare with: nothing is cut")
_REFERENCE = (Evidence.ASSUMED, "poplibs' CPU reference; the hardware's widths say otherwise")


def with_presets(units: Iterable[MatrixUnit]) -> tuple[MatrixUnit, ...]:
    """Every unit followed by its other readings."""
    return tuple(reading for unit in units for reading in _readings(unit))


def _readings(unit: MatrixUnit) -> list[MatrixUnit]:
    single_pass = unit.calls is None
    return [
        unit,
        replace(unit, name=f"{unit.name}.sticky", cut="sticky", preset="sticky"),
        replace(
            unit, name=f"{unit.name}.exact", window=None, preset="exact",
            evidence={**unit.evidence, "window": _UNCUT},
        ),
        replace(
            unit, name=f"{unit.name}.sequential_f32", terms=1,
            calls=None if single_pass else unit.channels, window=None,
            join=None if single_pass else BINARY32, product_rounded=True, preset="sequential_f32",
            evidence={**unit.evidence, **dict.fromkeys(("terms", "calls", "window"), _REFERENCE)},
        ),
    ]
