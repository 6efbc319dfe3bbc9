"""Matrix units whose operands are blocks: products, scales, how they are aligned and summed.

Modelled                                       source
tcgen05 and mma, mxf8f6f4: 32 products,        MMA-Sim c785138, whose paper claims bit equality and
one pair of scales, window 25, toward zero     whose repository has no vectors: INFERRED
tcgen05 and mma, mxf4nvf4: groups of 16,       the same; whether a group whose products are all zero
window 35, toward zero                         takes part in the largest exponent is not verified:
                                               it does by default, as there; `.nonzero` otherwise
H100 with scales of 128: wgmma of 128 terms,   wgmma MEASURED by mmaemu 0.1.0 on an H100 PCIe;
then one binary32 fma for each 128             DeepGEMM 54e2261 multiplies the scales first,
                                               TransformerEngine's reference the partial (`.cublas`)
CDNA4 mfma_scale: 32 products, one pair of     widths and rounding are not published: three presets
scales                                         around what is plausible, all ASSUMED

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from fpsim.records.evidence import Evidence
from fpsim.records.formats import (
    BINARY32,
    E2M1FN,
    E2M3FN,
    E3M2FN,
    E4M3FN,
    E5M2,
    E8M0,
    UE4M3,
    Format,
    ScaleFormat,
)
from fpsim.records.rounding import RNE, RTN, RTZ
from fpsim.records.tensor_cores import BINARY32_SHORT
from fpsim.records.units import SCALED_UNITS, MatrixUnit

__all__ = ["ScaledUnit", "register_scaled"]

#: How a partial result is added: fma(scale of a times scale of b, partial, sum), or
#: fma(partial times scale of a, scale of b, sum); binary32, to nearest even.
_PROMOTIONS = ("scales first", "partial first")


@dataclass(frozen=True)
class ScaledUnit(MatrixUnit):
    """A matrix instruction on blocks.

    scale_block    terms under one pair of scales.
    scale_formats  formats that either scale may have.
    group          terms that are summed exactly before the scales are applied; 1: each product has
                   the exponents of its scales added.
    empty_groups   a group of products that are all zero takes part in the largest exponent.
    promotion      None: scales enter the call. Else each `scale_block` starts from zero and its sum
                   is added by one fma, in this order of factors.
    """

    scale_block: int = 32
    scale_formats: tuple[ScaleFormat | Format, ...] = (E8M0,)
    group: int = 1
    empty_groups: bool = False
    promotion: str | None = None
    evidence: Mapping[str, tuple[Evidence, str]] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("scale_block", "group"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name}={value!r} is not an integer; give a whole number")
        if self.group < 1 or self.scale_block < 1 or self.scale_block % self.group:
            raise ValueError(
                f"group={self.group} of scale_block={self.scale_block}; a block is whole groups"
            )
        if self.promotion is None and self.terms % self.scale_block:
            raise ValueError(
                f"terms={self.terms}, scale_block={self.scale_block}; a call is whole blocks"
            )
        if self.promotion is not None and self.scale_block % self.terms:
            raise ValueError(
                f"scale_block={self.scale_block}, terms={self.terms}; a promoted block is whole "
                "calls"
            )
        if self.promotion not in (None, *_PROMOTIONS):
            raise ValueError(
                f"promotion={self.promotion!r} is not known; use one of {', '.join(_PROMOTIONS)}"
            )

    __hash__ = MatrixUnit.__hash__

    def __reduce__(self) -> tuple[Callable[..., MatrixUnit], tuple[object, ...]]:
        """Its arguments again: the evidence is a view, which cannot be pickled."""
        arguments = (getattr(self, f.name) for f in fields(self))
        return _scaled, tuple(dict(v) if isinstance(v, MappingProxyType) else v for v in arguments)

    @property
    def takes_blocks(self) -> bool:
        return True


def _scaled(*arguments: Any) -> ScaledUnit:
    """A unit from all of its fields, in their order."""
    return ScaledUnit(*arguments)


def register_scaled(units: Iterable[ScaledUnit]) -> None:
    """Make units of blocks known by name; a name is registered once."""
    for unit in units:
        if SCALED_UNITS.setdefault(unit.name, unit) != unit:
            raise ValueError(f"unit {unit.name} is registered already; choose another name")


_MMA_SIM = (Evidence.INFERRED, "MMA-Sim c785138; its repository has no vectors")
_UNVERIFIED = (Evidence.ASSUMED, "as MMA-Sim c785138 has it; not verified on hardware")
_MMAEMU = (Evidence.MEASURED, "mmaemu 0.1.0: H100 PCIe, cuBLAS 12.8.3.14, 1423 calls")
_UNPUBLISHED = (Evidence.ASSUMED, "widths and rounding of CDNA4 are not published")
_CONSTANTS = ("terms", "window", "cut", "accumulator", "rounding", "group", "scale_block")
_ALL = (E4M3FN, E5M2, E2M3FN, E3M2FN, E2M1FN)


def _blackwell(machine: str, instruction: str) -> list[ScaledUnit]:
    rows = [ScaledUnit(
        f"{machine}_MXF8_F32", f"{instruction}, mxf8f6f4", _ALL, BINARY32, 32, 25, rounding=RTZ,
        evidence=dict.fromkeys(_CONSTANTS, _MMA_SIM),
    )]
    for name, block, scale in (("MXF4", 32, E8M0), ("NVF4", 16, UE4M3)):
        row = ScaledUnit(
            f"{machine}_{name}_F32", f"{instruction}, mxf4nvf4", (E2M1FN,), BINARY32, 64, 35,
            rounding=RTZ, scale_block=block, scale_formats=(scale,), group=16, empty_groups=True,
            evidence=dict.fromkeys(_CONSTANTS, _MMA_SIM) | {"empty_groups": _UNVERIFIED},
        )
        rows += [row, replace(row, name=f"{row.name}.nonzero", preset="nonzero",
                              empty_groups=False)]
    return rows


def _hopper() -> list[ScaledUnit]:
    row = ScaledUnit(
        "H100_E4M3X128_F32", "H100 tensor core, wgmma, promoted by DeepGEMM", (E4M3FN, E5M2),
        BINARY32, 32, 13, accumulator=BINARY32_SHORT, rounding=RTZ, scale_block=128,
        scale_formats=(BINARY32,), promotion="scales first",
        evidence=dict.fromkeys(_CONSTANTS, _MMAEMU)
        | {"promotion": (Evidence.DOCUMENTED, "DeepGEMM 54e2261")},
    )
    cublas = (Evidence.INFERRED, "TransformerEngine d0067d0, blockwise_fp8_gemm_reference.py")
    return [row, replace(
        row, name=f"{row.name}.cublas", preset="cublas", promotion="partial first",
        instruction="H100 tensor core, wgmma, promoted by cuBLAS",
        evidence={**row.evidence, "promotion": cublas},
    )]


def _cdna4() -> list[ScaledUnit]:
    row = ScaledUnit(
        "CDNA4_MXF8_F32", "CDNA4 mfma_scale", _ALL, BINARY32, 32, 25, rounding=RNE,
        evidence=dict.fromkeys(_CONSTANTS, _UNPUBLISHED),
    )
    return [
        row,
        replace(row, name=f"{row.name}.zero", preset="zero", rounding=RTZ),
        replace(row, name=f"{row.name}.down", preset="down", rounding=RTN),
    ]


register_scaled([
    *_blackwell("B200_TC05", "B200 tensor core, tcgen05"),
    *_blackwell("RTXB", "RTX Blackwell tensor core, mma"), *_hopper(), *_cdna4(),
])
