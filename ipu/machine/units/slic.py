"""The SLIC unit: convolutions with few channels, four taps along a row of the kernel per pass.

Modelled                                     evidence
window of 1x4 taps, ascending along the row  DOCUMENTED  instruction set, tables of f16v4sisoslic
one dot product of four channels per tap     DOCUMENTED  the same
f8: eight channels per tap                   DOCUMENTED  poplibs inlineAssemblerSLIC.hpp
f32: two channels per tap, one fused         DOCUMENTED  instruction set, table of f32sisoslic;
multiply-add each                                        INFERRED that it is fused
half partials rounded once per 1x4 window    DOCUMENTED  poplibs ConvPartial1xNSLIC.cpp
groupings, strides                           DOCUMENTED  poplibs ConvVertexType.cpp
sum of a dot product: 31 fraction digits     INFERRED    the AMP's adder; cut and rounding ASSUMED

Not modelled: the mode of three taps; the eight- and sixteenfold groupings; channels of other groups
in the same vector, which meet weights of zero on the machine (an infinity there would give NaN). Of
the last window of a row, taps beyond the kernel are zeros times zeros here; on the machine the
field's values stand there.

Source    Graphcore, Tile Vertex Instruction Set; poplibs; docs/semantics.md §5.
"""

from __future__ import annotations

from fpsim.records.evidence import Evidence, Fact
from fpsim.records.formats import BINARY16, BINARY32, F143, F152, Format
from fpsim.records.units import MatrixUnit, register
from ipu.machine.units.presets import NEAREST, UNKNOWN, WIDTHS, with_presets

__all__ = ["GROUPINGS", "SLIC_UNITS", "STRIDES", "grouping"]

_TABLES = (Evidence.DOCUMENTED, "instruction set, tables of f16v4hihoslic and f16v4sisoslic")
_SINGLE = (Evidence.DOCUMENTED, "instruction set, table of f32sisoslic")
_FUSED = (Evidence.INFERRED, "one term at a time into the accumulator (table of f32sisoslic)")
_PAIR = (Evidence.INFERRED, "two binary32 of a 64-bit vector per tap; four taps as for f16")
_POPLIBS = (Evidence.DOCUMENTED, "poplibs ConvPartial1xNSLIC.cpp, inlineAssemblerSLIC.hpp")
_VERTEX = "poplibs ConvVertexType.cpp"

#: Convolution groups times channels that share the four channels of a vector.
GROUPINGS = Fact(((1, 4), (2, 2), (4, 1)), Evidence.DOCUMENTED, _VERTEX)
#: Strides of the output along a row.
STRIDES = Fact((1, 2), Evidence.DOCUMENTED, _VERTEX)


def grouping(channels: int) -> tuple[int, int]:
    """Groups and channels of a vector for so many channels per group; three are padded to four.

    >>> [grouping(channels) for channels in (1, 2, 3, 4)]
    [(4, 1), (2, 2), (1, 4), (1, 4)]
    """
    fitting = [pair for pair in GROUPINGS.value if pair[1] >= channels]
    if channels < 1 or not fitting:
        raise ValueError(f"channels={channels} per group; a vector of the SLIC holds 1 to 4")
    best: tuple[int, int] = max(fitting)
    return best


def _windowed(
    name: str, instruction: str, inputs: tuple[Format, ...], partials: Format, terms: int,
    shape: tuple[Evidence, str],
) -> MatrixUnit:
    """Four calls, one per tap."""
    return MatrixUnit(
        name=name, instruction=instruction, inputs=inputs, partials=partials, terms=terms, calls=4,
        taps=4, window=31,
        evidence={
            "terms": shape, "calls": shape, "taps": shape, "order": shape, "window": WIDTHS,
            "cut": UNKNOWN, "accumulator": shape, "rounding": NEAREST,
        },
    )


_WINDOWED = (
    _windowed("SLIC_F16_F32", "f16v4sisoslic, f16v4sihoslic", (BINARY16,), BINARY32, 4, _TABLES),
    _windowed("SLIC_F16_F16", "f16v4hihoslic, f16v4hihov4slic", (BINARY16,), BINARY16, 4, _TABLES),
    _windowed("SLIC_F8_F16", "f8v8hihov4slic", (F143, F152), BINARY16, 8, _POPLIBS),
)
_PLAIN = (
    MatrixUnit(
        name="SLIC_F32_F32", instruction="f32sisoslic", inputs=(BINARY32,), partials=BINARY32,
        terms=1, calls=8, taps=4, window=None,
        evidence={
            "terms": _FUSED, "calls": _PAIR, "taps": _PAIR, "order": _SINGLE, "rounding": NEAREST,
        },
    ),
)

#: Every SLIC record with its presets.
SLIC_UNITS: tuple[MatrixUnit, ...] = (*with_presets(_WINDOWED), *_PLAIN)
register(SLIC_UNITS)
