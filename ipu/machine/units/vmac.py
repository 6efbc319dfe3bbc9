"""Vector multiply-accumulate: convolutions that neither AMP nor SLIC takes.

Modelled                                     evidence
f16: four products per f16v4cmac             DOCUMENTED  instruction set
one binary32 accumulator for all of K        ASSUMED     see below
how a call aligns, cuts and rounds           ASSUMED     as a call of the AMP
one rounding into half, on the last store    DOCUMENTED  accumulators are read out once
f32: one fused multiply-add per term         ASSUMED     f32mac: not documented

Sources disagree with the single chain: f16v4cmac adds its products in pairs into two accumulators,
and poplibs' dot products add both lanes in the end. The order is K's here, so that a convolution
differs between its units in nothing but what a unit rounds.

Source    Graphcore, Tile Vertex Instruction Set; poplibs Dot.hpp; docs/semantics.md §5.
"""

from __future__ import annotations

from fpsim.records.evidence import Evidence
from fpsim.records.formats import BINARY16, BINARY32, Format
from fpsim.records.units import MatrixUnit, register
from ipu.machine.units.presets import NEAREST, UNKNOWN, with_presets

__all__ = ["VMAC_UNITS"]

_FOUR = (Evidence.DOCUMENTED, "instruction set, f16v4cmac")
_CHAIN = (Evidence.ASSUMED, "one accumulator, K ascending")
_AS_AMP = (Evidence.ASSUMED, "as a call of the AMP")
_FUSED = (Evidence.ASSUMED, "f32mac and f32v2mac: fused or not is not documented")


def _half(partials: Format, short: str) -> MatrixUnit:
    return MatrixUnit(
        name=f"VMAC_F16_{short}", instruction="f16v4cmac", inputs=(BINARY16,), partials=partials,
        terms=4, calls=None, window=31,
        evidence={
            "terms": _FOUR, "calls": _CHAIN, "order": _CHAIN, "window": _AS_AMP, "cut": UNKNOWN,
            "accumulator": _FOUR, "rounding": NEAREST,
        },
    )


_PLAIN = (
    MatrixUnit(
        name="VMAC_F32_F32", instruction="f32v2mac", inputs=(BINARY32,), partials=BINARY32,
        terms=1, calls=None, window=None,
        evidence={"terms": _FUSED, "calls": _CHAIN, "order": _CHAIN, "rounding": NEAREST},
    ),
)

#: Every record of the vector MAC with its presets.
VMAC_UNITS: tuple[MatrixUnit, ...] = (
    *with_presets((_half(BINARY32, "F32"), _half(BINARY16, "F16"))),
    *_PLAIN,
)
register(VMAC_UNITS)
