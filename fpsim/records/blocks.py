"""Blocks as records: elements that share a scale, and the rule that chooses it.

A `Block` says which elements stand under one scale, the formats of both, and by which rule the
scale follows from the largest magnitude; `fpsim.elementwise.blocks` computes it. How elements are
rounded is an argument of `quantize`, as everywhere.

Rules                                                                     source
floor, ceil, even, rceil    powers of two: see `SCALE_RULES`              OCP MX 1.0 §6.3; torchao
nearest                     E8M0.encode(fl(amax / max))                   ours
two_level                   NVFP4 with a scale of the tensor              TransformerEngine
two_level_eps               the same as inference of torchao does it      torchao nvfp4_quantize
mae46, mse46                4 or 6 as the largest code, by the error      fouroversix
amax, amax_down             a binary32 factor; a power of two             TransformerEngine
clamped, clamped_up         at least 1e-4 / max; a power of two           DeepGEMM
wide, wide_down             the quotient in binary64; a power of two      torchao float8
one                         no scale: 1                                   unit-scaling

Where sources disagree: an infinite amax gives the largest scale and saturated elements
(TransformerEngine, torchao 0.18) or a block of NaN (later torchao, microxcaling): `infinite` says
which, ASSUMED to be NaN where a row does not follow TransformerEngine.

Source    OCP Microscaling Formats 1.0; NVIDIA TransformerEngine d0067d0; torchao 36027d8;
          DeepGEMM 54e2261; fouroversix dadfad6; unit-scaling 18c3f50; docs/semantics.md §3.
"""

from __future__ import annotations

import difflib
import enum
import math
from dataclasses import dataclass, field, replace
from functools import cached_property

from fpsim.records.formats import (
    BINARY32,
    E1M6,
    E2M1FN,
    E2M3FN,
    E3M2FN,
    E4M3FN,
    E5M2,
    E8M0,
    F143,
    F152,
    UE4M3,
    UE5M3,
    Format,
    ScaleFormat,
    find_format,
    find_number_format,
)

__all__ = ["BLOCKS", "SCALE_RULES", "Block", "BlockFlags", "ScaleRule", "find_block"]


class BlockFlags(enum.IntFlag):
    """What happened to a block: to its elements, then to its scale.

    CLIPPED           an element beyond the largest value became that.
    FLUSHED           an element that is not zero became zero.
    SCALE_UNDERFLOW   the scale of a block with numbers is zero, or was raised to the least.
    SCALE_OVERFLOW    the scale was lowered to the largest.
    NAN               the scale is NaN, or there is a NaN among the numbers.

    >>> import fpsim as fp
    >>> x = [[1e-3] * 31 + [7.0], [1.0] * 32]
    >>> [BlockFlags(row[0]) for row in fp.quantize(x, "mxfp4", flags=True).block_flags.tolist()]
    [<BlockFlags.CLIPPED|FLUSHED: 3>, <BlockFlags.NONE: 0>]
    """

    NONE = 0
    CLIPPED = 1
    FLUSHED = 2
    SCALE_UNDERFLOW = 4
    SCALE_OVERFLOW = 8
    NAN = 16



@dataclass(frozen=True)
class ScaleRule:
    """How a scale follows from the largest magnitude of its block.

    scales     kind of scale that it gives: `power` (E8M0), `digits` (an unsigned format with
               fraction digits), `factor` (binary32).
    meaning    in a sentence; p is floor(log2(amax)), emax and max are the element's.
    """

    name: str
    scales: str
    meaning: str
    source: str


_OCP, _AO = "OCP MX 1.0 §6.3", "torchao 36027d8, to_mx"
_TE, _DG, _46 = "TransformerEngine d0067d0", "DeepGEMM 54e2261", "fouroversix dadfad6"
_US = "unit-scaling 18c3f50, formats.py"

#: Every rule by name.
SCALE_RULES = {
    rule.name: rule
    for rule in (
        ScaleRule("floor", "power", "exponent p - emax", _OCP),
        ScaleRule("ceil", "power", "p - emax, one more if amax is no power of two", _AO),
        ScaleRule("even", "power", "p of amax rounded half up to the element's digits", _AO),
        ScaleRule("rceil", "power", "ceil(log2(fl(amax * fl(1 / max))))", f"{_TE}; cuDNN"),
        ScaleRule("nearest", "power", "power of two nearest to fl(amax / max), ties up", "ours"),
        ScaleRule("two_level", "digits", "amax * S / max, S of the tensor", _TE),
        ScaleRule("two_level_eps", "digits", "(amax / max) / g, at least 2**-6",
                  "torchao 36027d8, nvfp4_quantize"),
        ScaleRule("mae46", "digits", "two_level of max 6 or 4, smaller sum of errors",
                  f"{_46}; {_TE}"),
        ScaleRule("mse46", "digits", "two_level of max 6 or 4, smaller sum of squares",
                  f"{_46}; {_TE}"),
        ScaleRule("amax", "factor", "fl(max / amax), 1 where there is none", _TE),
        ScaleRule("amax_down", "factor", "the same, down to a power of two", _TE),
        ScaleRule("clamped", "factor", "fl(amax / max), amax at least 1e-4", _DG),
        ScaleRule("clamped_up", "power", "the same, up to a power of two", _DG),
        ScaleRule("wide", "factor", "max / amax in binary64, amax at least 1e-12", _AO),
        ScaleRule("wide_down", "factor", "the same, down to a power of two", _AO),
        ScaleRule("one", "factor", "1: numbers are rounded as they are", _US),
    )
}

#: What an infinite amax does.
_INFINITE = ("nan", "saturate")

#: Side of a block at most: longer ones are whole axes (None).
_LONGEST = 1 << 16


@dataclass(frozen=True)
class Block:
    """Elements under one scale: their format, the scale's, how many, and the rule.

    element        format of the elements.
    scale          E8M0 (powers of two), UE4M3, UE5M3, or BINARY32.
    shape          elements across and along the axis of the block; None: all of them.
    scale_rule     a name of `SCALE_RULES`.
    tensor_scale   BINARY32: scales are relative to one of the whole tensor.
    bound          largest scale that the tensor's own scale aims at.
    headroom       factor of amax before the rule; above 1 nothing needs to be clipped.
    shrink         factor of the elements, which are divided by it when they are decoded.
    infinite       what an infinite amax does: `nan` (a block of NaN), or `saturate`.

    >>> find_block("nvfp4").elements, find_block("mxfp8").scale.name
    (16, 'e8m0')
    """

    name: str
    element: Format
    scale: ScaleFormat | Format
    shape: tuple[int | None, int | None] = (1, 32)
    scale_rule: str = "floor"
    tensor_scale: Format | None = None
    bound: float = 448.0
    headroom: float = 1.0
    shrink: float = 1.0
    infinite: str = "nan"
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"name={self.name!r} is not a name; give a text")
        object.__setattr__(self, "element", find_number_format(self.element, "element"))
        object.__setattr__(self, "scale", find_format(self.scale, "scale"))
        if self.tensor_scale is not None:
            fmt = find_number_format(self.tensor_scale, "tensor_scale")
            object.__setattr__(self, "tensor_scale", fmt)
        self._check_shape()
        self._check_rule()
        for label in ("bound", "headroom", "shrink"):
            value = getattr(self, label)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"{label}={value!r} is no number; give one above 0")
            if not 0 < value < math.inf:
                raise ValueError(f"{label}={value} is out of range; give a finite number above 0")
            object.__setattr__(self, label, float(value))
        if self.infinite not in _INFINITE:
            raise ValueError(
                f"infinite={self.infinite!r} is not known; use one of {', '.join(_INFINITE)}"
            )

    def _check_shape(self) -> None:
        if self.element.bits > 8:
            raise ValueError(
                f"element={self.element} has {self.element.bits} bits; elements of blocks have at "
                "most 8"
            )
        shape = self.shape
        if not isinstance(shape, (tuple, list)) or len(shape) != 2:
            raise TypeError(
                f"shape={shape!r} is no pair; give rows and elements along the axis, as (1, 32)"
            )
        for side in shape:
            if side is not None and (isinstance(side, bool) or not isinstance(side, int)):
                raise TypeError(f"shape={shape!r} holds {side!r}; give whole numbers, or None")
            if side is not None and not 1 <= side <= _LONGEST:
                raise ValueError(
                    f"shape={shape!r} is out of range; use 1 to {_LONGEST}, or None for all"
                )
        object.__setattr__(self, "shape", tuple(shape))

    def _check_rule(self) -> None:
        if not isinstance(self.scale_rule, str) or self.scale_rule not in SCALE_RULES:
            close = difflib.get_close_matches(str(self.scale_rule), SCALE_RULES, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"scale_rule={self.scale_rule!r} is not known; use one of "
                f"{', '.join(SCALE_RULES)}.{hint}"
            )
        rule = SCALE_RULES[self.scale_rule]
        if self._kind != rule.scales:
            fits = ", ".join(r.name for r in SCALE_RULES.values() if r.scales == self._kind)
            raise ValueError(
                f"scale_rule={rule.name!r} does not give scales in {self.scale}; "
                f"use one of {fits or 'none: this format holds no scales'}"
            )
        if self.tensor_scale not in (None, BINARY32):
            raise ValueError(
                f"tensor_scale={self.tensor_scale} is not offered; use BINARY32, or None"
            )
        if self.tensor_scale and rule.scales != "digits":
            raise ValueError(
                f"tensor_scale={self.tensor_scale} goes with scales that have digits; {self.scale} "
                "has none, so leave it out"
            )
        if rule.name.endswith("46") and self.element != E2M1FN:
            raise ValueError(
                f"scale_rule={rule.name!r} chooses between 4 and 6, codes of e2m1fn; "
                f"element={self.element} has others"
            )

    @property
    def _kind(self) -> str:
        if isinstance(self.scale, Format):
            return "factor" if self.scale == BINARY32 else "none"
        return "power" if self.scale.number is None else "digits"

    @cached_property
    def elements(self) -> int | None:
        """Elements along the axis of a block; None: all."""
        return self.shape[1]

    @property
    def rows(self) -> int | None:
        """Rows that share a scale; None: all."""
        return self.shape[0]

    @property
    def packed(self) -> bool:
        """Whether two codes share a byte."""
        return self.element.bits == 4

    @property
    def integers(self) -> bool:
        """Whether codes are integers in two's complement."""
        return self.element == E1M6

    @property
    def bits_per_element(self) -> float:
        """Storage of one element with its share of the scale; whole axes count no scale.

        >>> find_block("nvfp4").bits_per_element, find_block("mxfp4").bits_per_element
        (4.5, 4.25)
        """
        if None in self.shape:
            return float(self.element.bits)
        return self.element.bits + self.scale.bits / (self.shape[0] * self.shape[1])  # type: ignore[operator]

    def __str__(self) -> str:
        return self.name


def _mx(name: str, element: Format) -> Block:
    return Block(name, element, E8M0, source="OCP MX 1.0 §6.3")


#: TransformerEngine's recipe, of which the others are variants.
_NVFP4 = Block(
    "nvfp4", E2M1FN, UE4M3, (1, 16), "two_level", BINARY32, infinite="saturate",
    source=f"{_TE}, core_nvfp4.cuh",
)


def _fp8(name: str, shape: tuple[int | None, int | None], rule: str, source: str,
         element: Format = E4M3FN) -> Block:
    return Block(name, element, BINARY32, shape, rule, infinite="saturate", source=source)


#: Every named block, by name.
BLOCKS = {
    block.name: block
    for block in (
        _mx("mxfp8", E4M3FN),
        _mx("mxfp8-e5m2", E5M2),
        _mx("mxfp6", E2M3FN),
        _mx("mxfp6-e3m2", E3M2FN),
        _mx("mxfp4", E2M1FN),
        _mx("mxint8", E1M6),
        Block("mxfp8-rceil", E4M3FN, E8M0, (1, 32), "rceil", infinite="saturate", source=_TE),
        Block("mxfp8-32x32", E4M3FN, E8M0, (32, 32), "rceil", infinite="saturate", source=_TE),
        Block("mxfp4-34", E2M1FN, E8M0, shrink=0.75, source="arXiv 2502.20586"),
        _NVFP4,
        replace(_NVFP4, name="nvfp4-2d", shape=(16, 16)),
        replace(_NVFP4, name="nvfp4-1617", headroom=17 / 16, source=f"{_46}, stochastic_unbiased"),
        replace(_NVFP4, name="nvfp4-46", scale_rule="mae46", bound=256.0, source=_46),
        replace(_NVFP4, name="nvfp4-eps", scale_rule="two_level_eps",
                source="torchao 36027d8, nvfp4_quantize"),
        replace(_NVFP4, name="nvfp4-ue5m3", scale=UE5M3, tensor_scale=None,
                source="arXiv 2509.17791"),
        _fp8("e4m3-128", (1, 128), "amax_down", f"{_TE}, blockwise"),
        _fp8("e4m3-128x128", (128, 128), "amax_down", f"{_TE}, blockwise"),
        _fp8("e4m3-128-deepgemm", (1, 128), "clamped", _DG),
        _fp8("e4m3-tensor", (None, None), "amax", f"{_TE}, current scaling"),
        _fp8("e5m2-tensor", (None, None), "amax", f"{_TE}, current scaling", E5M2),
        _fp8("e4m3-row", (1, None), "wide_down", "torchao 36027d8, rowwise"),
        _fp8("f143-unit", (None, None), "one", _US, F143),
        _fp8("f152-unit", (None, None), "one", _US, F152),
    )
}


def find_block(name: str | Block, argument: str = "block") -> Block:
    """The block of that name (case ignored).

    >>> find_block("nvfp5")
    Traceback (most recent call last):
    ...
    ValueError: block='nvfp5' is not known. Did you mean 'nvfp4'? See: fpsim list formats
    """
    if isinstance(name, Block):
        return name
    if not isinstance(name, str):
        raise TypeError(f"{argument}={name!r} is not a Block; use one of {', '.join(BLOCKS)}")
    key = name.lower()
    if key in BLOCKS:
        return BLOCKS[key]
    close = difflib.get_close_matches(key, BLOCKS, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"{argument}={name!r} is not known.{hint} See: fpsim list formats")
