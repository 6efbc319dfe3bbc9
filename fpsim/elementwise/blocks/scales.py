"""Scales of blocks from their largest magnitudes, one function for each kind of rule.

fl() is one binary32 operation to nearest even; NumPy computes them, under the processor's usual
status (see `fpsim.state.processor`).

Source    `fpsim.records.blocks` names that of each rule; docs/semantics.md §3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import apply
from fpsim.elementwise.codes import to_codes
from fpsim.records.blocks import SCALE_RULES, Block, BlockFlags
from fpsim.records.formats import Format, ScaleFormat
from fpsim.records.settings import Settings

__all__ = ["Scales", "alternatives", "same_scales", "scales_of", "tensor_factor"]

#: Of binary32. NumPy's types do not follow that its operations stay in it.
Magnitudes = NDArray[Any]
Fields = NDArray[Any]

#: Blocks whose scales are computed at a time.
_PIECE = 1 << 14

_INFINITY, _FRACTION = 0x7F800000, 0x007FFFFF
_ONE, _LARGEST = np.float32(1), np.finfo(np.float32).max

#: 2**(127 - code) for every code of E8M0, NaN for the last.
_POWERS = np.ldexp(_ONE, 127 - np.arange(256)).astype(np.float32)
_POWERS[255] = np.nan


class Scales(NamedTuple):
    """Scales of blocks.

    stored    codes (uint8) or binary32 scales, which decoded elements are multiplied by.
    factors   binary32, by which elements are multiplied before they are rounded.
    flags     `BlockFlags` of the scales.
    """

    stored: NDArray[Any]
    factors: Magnitudes
    flags: NDArray[np.uint8]


def scales_of(block: Block, largest: Magnitudes, of_tensor: np.float32) -> Scales:
    """Scales by the block's rule from the largest magnitude of each, and that of the tensor.

    Shapes    as `largest`. Many are computed in pieces, whose steps stay in the cache.
    """
    if largest.size <= _PIECE:
        return _scales_of(block, largest, of_tensor)
    flat = largest.reshape(-1)
    parts = [
        _scales_of(block, flat[i : i + _PIECE], of_tensor) for i in range(0, flat.size, _PIECE)
    ]
    return Scales(
        *(np.concatenate(part).reshape(largest.shape) for part in zip(*parts, strict=True))
    )


def same_scales(largest: Magnitudes, factor: np.float32) -> Scales:
    """Binary32 scales that somebody else chose: one factor for all blocks."""
    factors = np.full(largest.shape, factor, np.float32)
    flags = np.zeros(largest.shape, np.uint8)
    _raise(flags, np.isnan(largest), BlockFlags.NAN)
    return Scales(_ONE / factors, factors, flags)


def _scales_of(block: Block, largest: Magnitudes, of_tensor: np.float32) -> Scales:
    rule = SCALE_RULES[block.scale_rule]
    with np.errstate(all="ignore"):
        amax = largest * np.float32(block.headroom) if block.headroom != 1 else largest
        stored, factors, flags = _KINDS[rule.scales](block, amax, of_tensor)
        if block.shrink != 1:
            factors = factors * np.float32(block.shrink)
    _raise(flags, np.isnan(amax), BlockFlags.NAN)
    return Scales(stored, factors, flags)


def _flagged(amax: Magnitudes, under: Any, over: Any, nan: Any) -> NDArray[np.uint8]:
    flags = np.zeros(amax.shape, np.uint8)
    _raise(flags, under & (amax != 0), BlockFlags.SCALE_UNDERFLOW)
    _raise(flags, over, BlockFlags.SCALE_OVERFLOW)
    _raise(flags, nan, BlockFlags.NAN)
    return flags


def _raise(flags: NDArray[np.uint8], where: NDArray[np.bool_], flag: BlockFlags) -> None:
    flags[where] |= np.uint8(flag)


# Powers of two --------------------------------------------------------------------------------


def _field(x: Magnitudes) -> Fields:
    """The exponent field of binary32, which is a code of E8M0."""
    return np.asarray(x.view(np.int32) >> 23)


def _field_up(x: Magnitudes) -> Fields:
    """That of the next power of two, unless x is one; 2**-127 is a subnormal number."""
    bits = x.view(np.int32)
    field = (bits >> 23) + ((bits & _FRACTION) != 0)
    up: Fields = np.where(bits <= 1 << 22, 0, field)
    return up


def _floor(block: Block, amax: Magnitudes) -> Fields:
    return _field(amax) - block.element.emax


def _ceil(block: Block, amax: Magnitudes) -> Fields:
    return _field_up(amax) - block.element.emax


def _even(block: Block, amax: Magnitudes) -> Fields:
    half, bits = 1 << (22 - block.element.nmant), np.minimum(amax.view(np.int32), _INFINITY)
    # Numbers from 2**-127 on stand one digit further down.
    return (bits + np.where(bits < 1 << 23, half >> 1, half) >> 23) - block.element.emax


def _rceil(block: Block, amax: Magnitudes) -> Fields:
    return _field_up(amax * (_ONE / np.float32(block.element.max)))


def _nearest(block: Block, amax: Magnitudes) -> Fields:
    scale = amax / np.float32(block.element.max)
    bits = scale.view(np.int32)
    subnormal = (bits >= 3 << 21).astype(np.int32)  # from 1.5 * 2**-127 on it is 2**-126
    return np.where(bits < 1 << 23, subnormal, bits + (1 << 22) >> 23)


def _clamped_up(block: Block, amax: Magnitudes) -> Fields:
    return _field_up(np.maximum(amax, np.float32(1e-4)) / np.float32(block.element.max))


_FIELDS = {
    "floor": _floor, "ceil": _ceil, "even": _even, "rceil": _rceil, "nearest": _nearest,
    "clamped_up": _clamped_up,
}


def _powers(block: Block, amax: Magnitudes, _: np.float32) -> Scales:
    field = _FIELDS[block.scale_rule](block, amax)
    codes = np.clip(field, 0, 254).astype(np.uint8)
    nan = np.isnan(amax)
    if block.infinite == "nan":
        nan |= np.isinf(amax)
    codes[nan] = 255
    return Scales(codes, _POWERS[codes], _flagged(amax, field < 0, (field > 254) & ~nan, nan))


# Scales with digits ---------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _saturating(fmt: Format) -> Settings:
    return Settings(fmt, overflow="saturate")


def tensor_factor(block: Block, of_tensor: np.float32) -> np.float32:
    """S: what the numbers of a tensor are multiplied by before blocks have their scales.

    1 without a scale of the tensor, for a tensor of zeros, and for one with an infinity.
    """
    if block.tensor_scale is None:
        return _ONE
    with np.errstate(all="ignore"):
        factor = np.minimum(np.float32(block.element.max * block.bound) / of_tensor, _LARGEST)
    return factor if factor != 0 and of_tensor != 0 else _ONE


def _two_level(
    block: Block, amax: Magnitudes, of_tensor: np.float32, more: float = 1.0
) -> Scales:
    """TransformerEngine's: scale and factor both by the reciprocal of S."""
    factor = tensor_factor(block, of_tensor)
    exact = amax * (factor * (_ONE / np.float32(block.element.max)))
    if more != 1:
        exact = exact * np.float32(more)
    scale, stored, flags = _digits(block, amax, exact)
    factors = np.minimum(_ONE / (scale * (_ONE / factor)), _LARGEST)
    return Scales(stored, factors, flags)


def _two_level_eps(block: Block, amax: Magnitudes, of_tensor: np.float32) -> Scales:
    """torchao's: quotients by the scale of the tensor, and none below the smallest normal."""
    of_all = _ONE
    if block.tensor_scale is not None and of_tensor != 0:
        of_all = of_tensor / np.float32(block.element.max * block.bound)
    number = _number(block)
    exact = amax / np.float32(block.element.max) / of_all
    raised = np.maximum(exact, np.float32(number.smallest_normal))
    scale, stored, flags = _digits(block, amax, raised)
    _raise(flags, (exact < raised) & (amax != 0), BlockFlags.SCALE_UNDERFLOW)
    return Scales(stored, _ONE / of_all / scale, flags)


def _number(block: Block) -> Format:
    """The format whose codes without sign are those of the scale."""
    assert isinstance(block.scale, ScaleFormat)
    assert block.scale.number is not None
    return block.scale.number


def _digits(
    block: Block, amax: Magnitudes, exact: Magnitudes
) -> tuple[Magnitudes, NDArray[np.uint8], NDArray[np.uint8]]:
    """Scales to nearest even, saturated; their codes, which have no sign; flags."""
    fmt = _number(block)
    most = np.float32(fmt.max)
    nan = np.isnan(exact)
    if block.infinite == "nan":
        nan |= np.isinf(amax)
    exact = np.minimum(exact, most + _ONE)  # NaN stays
    scale, _ = apply("convert", (exact,), _saturating(fmt), track=False)
    scale[nan] = np.nan
    stored = to_codes(scale, fmt).astype(np.uint8)
    return scale, stored, _flagged(amax, scale == 0, exact > most, nan)


def alternatives(block: Block, largest: Magnitudes, of_tensor: np.float32) -> list[Scales]:
    """Scales that make 6, and 4, the code of the largest magnitude; 4 has half again of 6's."""
    with np.errstate(all="ignore"):
        amax = largest * np.float32(block.headroom)
        return [_two_level(block, amax, of_tensor, more) for more in (1.0, 1.5)]


_DIGITS: dict[str, Callable[[Block, Magnitudes, np.float32], Scales]] = {
    "two_level": _two_level, "two_level_eps": _two_level_eps,
}


def _with_digits(block: Block, amax: Magnitudes, of_tensor: np.float32) -> Scales:
    return _DIGITS[block.scale_rule](block, amax, of_tensor)


# Binary32 factors -----------------------------------------------------------------------------


def _down(x: Magnitudes) -> Magnitudes:
    """The power of two at or below; NaN stays."""
    power: Magnitudes = (x.view(np.uint32) & np.uint32(0xFF800000)).view(np.float32)
    return np.where(np.isnan(x), x, power)


def _amax(block: Block, amax: Magnitudes) -> Magnitudes:
    factor = np.minimum(np.float32(block.element.max) / amax, _LARGEST)
    return np.where((amax == 0) | ~np.isfinite(amax), _ONE, factor)


def _wide(block: Block, amax: Magnitudes) -> Magnitudes:
    least = np.maximum(amax.astype(np.float64), 1e-12)
    return (block.element.max / least).astype(np.float32)


def _factors(block: Block, amax: Magnitudes, _: np.float32) -> Scales:
    rule = block.scale_rule
    if rule == "one":
        ones = np.ones(amax.shape, np.float32)
        return Scales(ones, ones, _flagged(amax, ones != 1, ones != 1, np.isnan(amax)))
    if rule == "clamped":
        stored = np.maximum(amax, np.float32(1e-4)) / np.float32(block.element.max)
        factors = _ONE / stored
    else:
        factors = (_amax if rule.startswith("amax") else _wide)(block, amax)
        factors = _down(factors) if rule.endswith("_down") else factors
        stored = _ONE / factors
    under = factors == _LARGEST
    return Scales(stored, factors, _flagged(amax, under, np.isinf(amax), np.isnan(amax)))


_KINDS = {"power": _powers, "digits": _with_digits, "factor": _factors}
