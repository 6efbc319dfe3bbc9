"""Matrix units and operands at random, hard in the places where engines differ.

What is compiled into a kernel (terms and calls of a pass, how sums are rounded, the mode of
stores) is taken from the short list of `SHAPES`; the numbers that kernels read are drawn freely
for every product: formats of both operands, partials and accumulator with precision 2 to 24 and any
range that binary32 holds, window 1 to 48, scale, join, pairs, products rounded first, policies for
subnormals, overflow and NaN, tininess, seeds. So a thousand units need a dozen kernels.

Operands are codes: significands of ones, zeros or anything, exponents that lie together, apart by
the window, or anywhere, subnormals, the top binade, neighbours that cancel, infinities and NaN; and
sums that are a tie in one of the formats but for a last digit, which only a second rounding loses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    E2M1FN,
    E4M3FN,
    E5M2,
    F143,
    F152,
    TF32,
    Format,
)
from fpsim.records.rounding import RNE, RTP, RTZ, SR, Rounding
from fpsim.records.settings import SUBNORMALS, ZERO_OR_NORMAL, Settings
from fpsim.records.units import MatrixUnit

__all__ = ["KINDS", "SHAPES", "UnitTrial", "Shape", "codes_of", "draw_case", "named_case", "ties"]

Codes = NDArray[np.uint32]
Random = np.random.Generator
#: Rules for subnormals that products have; the other one is for single operations.
_SUBNORMALS = tuple(policy for policy in SUBNORMALS if policy != ZERO_OR_NORMAL)


@dataclass(frozen=True)
class Shape:
    """What kernels are compiled for.

    sums     nearest: windows, to binary32; cut: toward zero, to any number of digits of binary32;
             whole: to nearest into the format of the partials; exact: no window, to binary32;
             fused: the same of binary32 operands; any: what none of these is.
    stores   how the context rounds partials and results; words of a source of its own (Replay),
             else of Philox.
    fma      whether kernels are compiled a second time, without fused multiply-adds.
    """

    sums: str
    terms: int
    calls: int | None
    stores: Rounding = RNE
    replay: bool = False
    fma: bool = False


#: In the order in which they take turns. The first ones are those of named units.
SHAPES = (
    Shape("nearest", 4, 4), Shape("cut", 4, 1), Shape("whole", 4, 1), Shape("any", 4, 2),
    Shape("exact", 4, 4, fma=True), Shape("fused", 1, 8, fma=True),
    Shape("nearest", 4, 4, SR(11), fma=True), Shape("any", 3, 4, SR(9), replay=True),
    Shape("nearest", 16, 2, SR(20)), Shape("whole", 1, None, SR(13, subnormal_bits=16)),
    Shape("cut", 8, 2, RTP), Shape("exact", 1, None, RTZ, fma=True),
    Shape("exact", 8, 2, SR(10), replay=True), Shape("any", 8, None, SR(24)),
    Shape("whole", 32, 1), Shape("nearest", 2, None, SR(7), fma=True),
)

KINDS = ("near", "window", "tie", "wide", "subnormal", "top", "special")

_INPUTS = (BINARY16, BFLOAT16, TF32, E4M3FN, E5M2, F143, F152, E2M1FN)
_NARROW = (BINARY16, BFLOAT16, F143, E5M2, E4M3FN)


@dataclass(frozen=True)
class UnitTrial:
    """A unit with the choices of one product, and the numbers that it is to be tried on.

    subnormals   the product's argument; None: by the settings.
    """

    unit: MatrixUnit
    a: Format
    b: Format
    settings: Settings
    scale: int
    subnormals: str | None
    replay: bool
    kind: str


def _pick(rng: Random, choices: Sequence[Any]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _format(rng: Random, digits: tuple[int, int], specials: str = "ieee") -> Format:
    """A format of so many digits, within binary32."""
    while True:
        precision, bits = int(rng.integers(*digits)), int(rng.integers(2, 9))
        middle = (1 << (bits - 1)) - 1
        bias = middle + int(rng.integers(-4, 5)) * (bits < 8)
        name = f"e{bits}m{precision - 1}b{bias}{specials}"
        fmt = Format(name, bits, precision, bias, specials)
        if fmt.carrier == np.float32:
            return fmt


def _input(rng: Random, most: int) -> Format:
    formats = [f for f in _INPUTS if f.precision <= most]
    fmt: Format = _pick(rng, formats) if rng.random() < 0.5 else _format(rng, (2, most + 1))
    return fmt


def _policies(rng: Random, partials: Format, rounding: Rounding) -> Settings:
    """Settings of a result in the format of the partials, or in a narrower one."""
    narrow = [f for f in _NARROW if f.precision <= partials.precision]
    fmt = _pick(rng, narrow) if narrow and rng.random() < 0.3 else partials
    overflows = ["nan", "saturate", *["infinity"] * (fmt.has_infinity and partials.has_infinity)]
    return Settings(
        fmt, rounding, _pick(rng, overflows), _pick(rng, _SUBNORMALS),
        _pick(rng, ["after", "before"]), quiet_nan_raises=bool(rng.integers(2)),
    )


def _sums(rng: Random, shape: Shape, least: int) -> dict[str, Any]:
    """Accumulator, rounding, partials and window, of `least` digits, of a kind of sums."""
    most = min(48, 50 - (shape.terms + 1).bit_length())
    window = int(rng.integers(least, most + 1))
    stored = _pick(rng, [BINARY16, BFLOAT16, _format(rng, (2, 24)), F143])
    partials = BINARY32 if rng.random() < 0.4 and shape.stores == RNE else stored
    if shape.sums == "cut":
        short = Format.custom(8, int(rng.integers(8, 24)), name="short")
        fields = {"accumulator": _pick(rng, [BINARY32, short]), "rounding": RTZ}
        return fields | {"window": window, "partials": partials}
    if shape.sums == "whole":
        fmt = _pick(rng, [BINARY16, BFLOAT16, _format(rng, (2, 25))])
        return {"accumulator": fmt, "partials": fmt, "window": window}
    if shape.sums in ("exact", "fused"):
        return {"partials": BINARY32 if shape.sums == "fused" else partials, "window": None}
    return {"partials": partials, "window": window}


def _anything(rng: Random, shape: Shape) -> dict[str, Any]:
    """A unit that the general kernel alone takes, with at least one thing that no other knows."""
    sums = _format(rng, (2, 25)) if rng.random() < 0.6 else BINARY32
    partials = _pick(rng, [BINARY32, BINARY16, sums, _format(rng, (2, 25))])
    unit: dict[str, Any] = {
        "accumulator": sums, "partials": partials, "rounding": _pick(rng, [RNE, RTZ]),
        "window": _pick(rng, [None, int(rng.integers(1, 49))]),
    }
    odd = ["pairs"] * (shape.terms * (shape.calls or 1) % 4 == 0) + ["product_rounded"]
    odd += ["sticky"] * (unit["window"] is not None) + ["join"] * (shape.calls is not None)
    values: dict[str, dict[str, Any]] = {
        "pairs": {"order": "pairs"}, "product_rounded": {"product_rounded": True},
        "sticky": {"cut": "sticky"}, "join": {"join": _pick(rng, [BINARY32, sums, BINARY16])},
    }
    for name in rng.permutation(odd)[: int(rng.integers(1, len(odd) + 1))]:
        unit |= values[str(name)]
    return unit


def draw_case(rng: Random, shape: Shape, number: int) -> UnitTrial:
    """A unit of a shape, with everything else at random.

    >>> case = draw_case(np.random.default_rng(1), SHAPES[0], 1)
    >>> case.unit.terms, case.unit.calls, case.unit.rounding
    (4, 4, RNE)
    """
    kind = _pick(rng, (*KINDS, "tie", "tie"))
    least = 25 if kind == "tie" else 1  # beyond the digits of binary32
    numbers = _anything(rng, shape) if shape.sums == "any" else _sums(rng, shape, least)
    a, b = (_input(rng, _pick(rng, [11, 13, 24])) for _ in range(2))
    if shape.sums == "exact":
        a, b = _input(rng, 13), _input(rng, 13)
    if shape.sums == "fused":
        a = b = BINARY32
    unit = MatrixUnit(
        f"RANDOM{number}", "none: drawn at random", tuple(dict.fromkeys((a, b))),
        terms=shape.terms, calls=shape.calls, **numbers,
    )
    scaled = kind != "tie" and rng.random() < 0.2 and shape.sums != "fused"
    return UnitTrial(
        unit, a, b, _policies(rng, unit.partials, shape.stores),
        int(rng.integers(-12, 13)) if scaled else 0,
        _pick(rng, _SUBNORMALS) if rng.random() < 0.5 else None, shape.replay,
        kind,
    )


def named_case(rng: Random, unit: MatrixUnit, shape: Shape) -> UnitTrial:
    """A unit as it is, with policies and operands at random; the shape says how it stores."""
    settings = _policies(rng, unit.partials, shape.stores)
    a, b = (_pick(rng, unit.inputs) for _ in range(2))
    return UnitTrial(unit, a, b, settings, 0, None, shape.replay, _pick(rng, KINDS))


# Operands -------------------------------------------------------------------------------------


def codes_of(
    rng: Random, fmt: Format, shape: tuple[int, ...], kind: str, near: int, span: int
) -> Codes:
    """Codes of a format; exponents of those that lie together are near … near - span."""
    top = (1 << fmt.exponent_bits) - (2 if fmt.specials == "ieee" else 1)
    digits = fmt.precision - 1
    if kind == "special":
        anything = rng.integers(0, fmt.n_codes, shape).astype(np.uint32)
        calm = codes_of(rng, fmt, shape, "near", near, span)
        lines = rng.random((*shape[:-1], 1)) < 0.3
        return np.where(lines & (rng.random(shape) < 0.1), anything, calm)
    highest = min(max(near + fmt.bias, 1), top)
    if kind == "top":
        drops = rng.choice([0, 0, 1, span], shape)
        highest = top
    elif kind == "window":
        drops = rng.choice([0, 0, span // 2, span // 2 + 1, max(span - 1, 0)], shape)
    elif kind == "wide":
        drops, highest = rng.integers(0, top + 1, shape), top
    elif kind == "subnormal":
        drops, highest = rng.integers(0, 3, shape), 1
    else:
        drops = rng.integers(0, min(span, 12) + 1, shape)
    field = np.maximum(highest - drops, 0)
    all_ones = (1 << digits) - 1
    fraction = rng.integers(0, 1 << digits, shape)
    fixed = rng.choice([0, 0, 1, all_ones, all_ones, 1 << max(digits - 1, 0)], shape) & all_ones
    fraction = np.where(rng.random(shape) < 0.5, fraction, fixed)
    body = field << digits | fraction
    if fmt.specials == "fn":
        body = np.minimum(body, (1 << (fmt.bits - 1)) - 2)
    body = np.where(rng.random(shape) < 0.15, 0, body)
    sign = rng.integers(0, 2, shape)
    if fmt.specials == "fnuz":
        sign = np.where(body == 0, 0, sign)
    codes: Codes = (sign << (fmt.bits - 1) | body).astype(np.uint32)
    return codes


def ties(rng: Random, case: UnitTrial, extents: tuple[int, int, int]) -> tuple[Codes, Codes]:
    """Operands whose sums are a number, half a unit of its last digit, and something far below.

    The number has the digits of a format that the product is rounded to, or of binary32; what is
    far below is mostly below the digits of binary32 and within the window.

    Shapes    extents M, N, K: a (M, K), b (K, N).
    """
    (m, n, k), unit, a_format = extents, case.unit, case.a
    p = _pick(rng, _digits_of(case))
    deepest = max(unit.window or 60, p + 2)
    roles = np.full(k, 2)
    roles[:: unit.channels] = 0
    roles[1 :: unit.channels] = 1
    first = _pick(rng, [p + 1, min(max(p + 1, 25), deepest), deepest])
    drops = np.choose(roles, [0, p, rng.integers(first, deepest + 1, k)])
    # Each operand takes as much of a drop as its format has room for.
    near = [_near(rng, fmt) for fmt in (case.a, case.b)]
    room = [e - fmt.emin for e, fmt in zip(near, (case.a, case.b), strict=True)]
    left = drops * room[0] // max(1, sum(room))
    a = _powers(rng, case.a, (m, k), near[0] - left)
    b = _powers(rng, case.b, (n, k), near[1] - (drops - left))
    # The number itself: any digits on one side, a power of two on the other.
    number = rng.integers(0, 1 << (a_format.precision - 1), a.shape)
    if a_format.specials == "fn":
        number &= ~1
    a |= np.where(roles == 0, number, 0).astype(np.uint32)
    a[(rng.random(a.shape) < 0.5) & (roles == 2)] = 0
    return a, np.ascontiguousarray(b.T)


def _near(rng: Random, fmt: Format) -> int:
    """An exponent of a format with room below it."""
    most = min(fmt.emax, 12)
    return max(int(x) for x in rng.integers(min(most, max(fmt.emin, -20)), most + 1, 3))


def _digits_of(case: UnitTrial) -> list[int]:
    """Digits of every format that a product is rounded to; those of sums more often."""
    unit = case.unit
    formats = unit.join, unit.products, case.settings.format
    sums = [unit.accumulator.precision, unit.partials.precision] * 3
    return [24, *sums, *(fmt.precision for fmt in formats if fmt is not None)]


def _powers(rng: Random, fmt: Format, shape: tuple[int, int], exponents: Any) -> Codes:
    """Powers of two of either sign, as near to their exponents as normal numbers are."""
    top = (1 << fmt.exponent_bits) - (2 if fmt.specials == "ieee" else 1)
    field = np.broadcast_to(np.clip(exponents + fmt.bias, 1, top), shape)
    sign = (rng.random(shape) < 0.3).astype(np.int64)
    codes: Codes = (sign << (fmt.bits - 1) | field << (fmt.precision - 1)).astype(np.uint32)
    return codes
