"""Matrix instructions: which record computes them, how wide they are, what a weight load takes.

Modelled                                     evidence
outputs side by side, multiply-adds          DOCUMENTED  instruction set (8 units); poplibs,
                                             assembly of the convolution partials (v4)
rates of f8 and bfloat16                     INFERRED    units × terms; bfloat16 ASSUMED
weights of a unit, 32 bytes                  DOCUMENTED  poplibs, PerformanceEstimation.hpp
SLIC: 2 outputs per instruction, 4 in v4     DOCUMENTED  instruction set; poplibs; f32 INFERRED
SLIC: 16 cycles of 8 bytes to load           DOCUMENTED  poplibs, PerformanceEstimation.hpp
vector MAC: an instruction per cycle         INFERRED    six workers take turns

An instruction and its v4 form give the same bits: one record, two costs. f16v4sihoamp is the single
pass whose result leaves as binary16, rounded once: the record AMP_F16_F32 with a binary16 result.

Source    Graphcore, Tile Vertex Instruction Set; poplibs; docs/semantics.md §5.
"""

from __future__ import annotations

from dataclasses import dataclass

from fpsim.records.evidence import Evidence, Fact
from fpsim.records.formats import BINARY16, Format
from fpsim.records.units import MatrixUnit, find_unit
from ipu.machine.units import amp  # noqa: F401  (registers the units named below)

__all__ = ["BFLOAT16_ONLY", "EIGHT_UNITS", "QUARTERS", "SIXTEEN_UNITS", "Instruction"]


@dataclass(frozen=True)
class Instruction:
    """One matrix instruction.

    unit      record of its arithmetic, whose presets have the same cost.
    columns   outputs that are computed side by side, from one load of weights.
    macs      multiply-adds per cycle and tile.
    weights   bytes of one load of weights.
    leaves    format of the results.

    >>> EIGHT_UNITS[0].name, EIGHT_UNITS[0].macs.value, EIGHT_UNITS[0].cycles
    ('f16v4hihoamp', 32, 4.0)
    """

    name: str
    unit: MatrixUnit
    columns: int
    macs: Fact
    weights: Fact
    leaves: Format

    @property
    def cycles(self) -> float:
        """Cycles for one pass of its columns at one position."""
        cycles: float = self.columns * self.unit.channels / self.macs.value
        return cycles

    @property
    def facts(self) -> dict[str, Fact]:
        """The constants of its cost."""
        return {f"{self.name}, multiply-adds per cycle": self.macs,
                f"{self.name}, bytes per load of weights": self.weights}


_ISA = (Evidence.DOCUMENTED, "Tile Vertex Instruction Set")
_ASM = (Evidence.DOCUMENTED, "poplibs, assembly of the convolution partials, PerformanceEstimation")
_LOAD = (Evidence.DOCUMENTED, "poplibs, PerformanceEstimation.hpp: units × 32 bytes")
_PRODUCT = (Evidence.INFERRED, "units × terms; poplibs inlineAssemblerConv.hpp")
_WINDOW = (Evidence.DOCUMENTED, "poplibs, PerformanceEstimation.hpp: 16 cycles of 8 bytes")
_AS_AMP = (Evidence.INFERRED, "as f32sisoamp, one term per unit and cycle; weights as the f16 form")
_WORKERS = (Evidence.INFERRED, "one instruction per cycle, as six workers take turns")
_FICTION = (Evidence.ASSUMED, "as the f16 form; not an IPU feature")


def _amp(
    name: str, unit: str, columns: int, evidence: tuple[Evidence, str], leaves: Format | None = None
) -> Instruction:
    """As many units as columns, each adding one call's terms per cycle."""
    record = find_unit(unit)
    return Instruction(
        name, record, columns, Fact(columns * record.terms, *evidence), Fact(32 * columns, *_LOAD),
        leaves or record.partials,
    )


def _slic(
    name: str, unit: str, macs: int, evidence: tuple[Evidence, str], leaves: Format | None = None
) -> Instruction:
    """Four outputs of a window, in two turns where an instruction makes two."""
    record = find_unit(unit)
    load = _AS_AMP if evidence is _AS_AMP else _WINDOW
    return Instruction(
        name, record, 4, Fact(macs, *evidence), Fact(128, *load), leaves or record.partials
    )


def _vmac(name: str, unit: str, columns: int, macs: int) -> Instruction:
    """Weights come with the operands, none are loaded before."""
    record = find_unit(unit)
    return Instruction(
        name, record, columns, Fact(macs, *_WORKERS), Fact(0, *_WORKERS), record.partials
    )


#: Every target has these.
EIGHT_UNITS = (
    _amp("f16v4hihoamp", "AMP_F16_F16", 8, _ISA),
    _amp("f16v4sisoamp", "AMP_F16_F32", 8, _ISA),
    _amp("f16v4sihoamp", "AMP_F16_F32", 8, _ISA, BINARY16),
    _amp("f32sisoamp", "AMP_F32_F32", 8, _ISA),
    _slic("f16v4hihoslic", "SLIC_F16_F16", 32, _ISA),
    _slic("f16v4sisoslic", "SLIC_F16_F32", 32, _ISA),
    _slic("f16v4sihoslic", "SLIC_F16_F32", 32, _ISA, BINARY16),
    _slic("f32sisoslic", "SLIC_F32_F32", 8, _AS_AMP),
    _vmac("f16v4cmac", "VMAC_F16_F32", 1, 4),
    _vmac("f16v4cmac", "VMAC_F16_F16", 1, 4),
    _vmac("f32v2mac", "VMAC_F32_F32", 2, 2),
)
#: The second set of units came with Mk2; binary32 partials of f16 inputs still use one.
SIXTEEN_UNITS = (
    _amp("f16v4hihov4amp", "AMP_F16_F16", 16, _ASM),
    _amp("f32sisov2amp", "AMP_F32_F32", 16, _ASM),
    _slic("f16v4hihov4slic", "SLIC_F16_F16", 64, _ASM),
)
QUARTERS = (
    _amp("f8v8hihov4amp", "AMP_F8_F16", 16, _PRODUCT),
    _slic("f8v8hihov4slic", "SLIC_F8_F16", 128, _PRODUCT),
)
BFLOAT16_ONLY = (_amp("f16v4sisoamp of bfloat16", "AMP_BF16_F32", 8, _FICTION),)
