"""The AMP unit: accumulating matrix product, sixteen channels (f8: thirty-two) per pass.

Modelled                                     evidence
instructions, order of terms, calls          DOCUMENTED  instruction set, cycle tables of
                                             f16v4hihoamp and f16v4sisoamp; poplibs (f8)
window of 31 fraction digits                 INFERRED    adder input of 33 bits, 2 before the point
                                             (reverse-engineered constants TAMP_*)
cut of the digits below the window           ASSUMED     truncated; presets `sticky` and `exact`
accumulator rounding                         ASSUMED     nearest even to binary32 after every call
f32: one fused multiply-add per term         INFERRED    cycle table of f32sisoslic
bfloat16                                     ASSUMED     not an IPU feature

Sources disagree on the sum inside a pass: poplibs' CPU reference adds term by term in binary32 and
the partial last. That is the preset `sequential_f32`; the hardware's widths are followed otherwise.

Source    Graphcore, Tile Vertex Instruction Set; poplibs; docs/semantics.md §5.
"""

from __future__ import annotations

from fpsim.records.evidence import Evidence
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, F143, F152, Format
from fpsim.records.units import MatrixUnit, register
from ipu.machine.units.presets import NEAREST, PRESETS, UNKNOWN, WIDTHS, with_presets

__all__ = ["AMP_UNITS", "PRESETS"]

_DOCUMENTED = (Evidence.DOCUMENTED, "instruction set, cycle tables of f16v4hihoamp and sisoamp")
_POPLIBS = (Evidence.DOCUMENTED, "poplibs inlineAssemblerConv.hpp, ConvVertexType.cpp")
_FICTION = (Evidence.ASSUMED, "not an IPU feature; the f16 unit with other inputs")


def _sixteen_bit(name: str, instruction: str, inputs: Format, partials: Format) -> MatrixUnit:
    shape = _DOCUMENTED if inputs == BINARY16 else _FICTION
    return MatrixUnit(
        name=name, instruction=instruction, inputs=(inputs,), partials=partials, terms=4, calls=4,
        window=31,
        evidence={
            "terms": shape, "calls": shape, "order": shape,
            "window": WIDTHS if inputs == BINARY16 else _FICTION,
            "cut": UNKNOWN, "accumulator": shape, "rounding": NEAREST,
        },
    )


def _eight_bit(name: str, instruction: str) -> MatrixUnit:
    return MatrixUnit(
        name=name, instruction=instruction, inputs=(F143, F152), partials=BINARY16, terms=8,
        calls=4, window=31,
        evidence={
            "terms": _POPLIBS, "calls": _POPLIBS, "order": _POPLIBS, "window": WIDTHS,
            "cut": UNKNOWN, "accumulator": _POPLIBS, "rounding": NEAREST,
        },
    )


def _fused(name: str, instruction: str) -> MatrixUnit:
    inferred = (Evidence.INFERRED, "cycle table of f32sisoslic; example of the AMP")
    return MatrixUnit(
        name=name, instruction=instruction, inputs=(BINARY32,), partials=BINARY32, terms=1,
        calls=8, window=None,
        evidence={"terms": inferred, "calls": _DOCUMENTED, "order": inferred, "rounding": NEAREST},
    )


_WINDOWED = (
    _sixteen_bit("AMP_F16_F32", "f16v4sisoamp, f16v4sihoamp", BINARY16, BINARY32),
    _sixteen_bit("AMP_F16_F16", "f16v4hihoamp, f16v4hihov4amp", BINARY16, BINARY16),
    _eight_bit("AMP_F8_F16", "f8v8hihov4amp"),
    _sixteen_bit("AMP_BF16_F32", "none: hypothetical", BFLOAT16, BINARY32),
)
_PLAIN = (_fused("AMP_F32_F32", "f32sisoamp, f32sisov2amp"),)

#: Every AMP record with its presets.
AMP_UNITS: tuple[MatrixUnit, ...] = (*with_presets(_WINDOWED), *_PLAIN)
register(AMP_UNITS)
