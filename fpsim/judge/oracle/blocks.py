"""Scales and codes of one block in exact fractions; used by tests only.

Written from the rules as they are published and nothing else: slow and obvious. Numbers of
binary32 are Python floats, every operation on them is an exact fraction rounded once.

Source    `fpsim.records.blocks` names that of each rule; docs/semantics.md §3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from fpsim.judge.oracle.rounding import decode, encode, floor_log2, power, round_exact
from fpsim.records.blocks import Block
from fpsim.records.formats import BINARY32, Format, ScaleFormat
from fpsim.records.rounding import RNE, Rounding

__all__ = ["block_scale", "element_code", "error_of", "value_of"]

LARGEST = BINARY32.max
TINY = power(-149)


def fl(x: Fraction, sign: int = 0) -> float:
    """A real number in binary32, to nearest even."""
    datum = decode(round_exact(x, BINARY32, sign_of_zero=sign)[0], BINARY32)
    if datum.kind == "infinite":
        return -math.inf if datum.sign else math.inf
    return -0.0 if datum.is_zero and datum.sign else float(datum.value)


def times(x: float, y: float) -> float:
    if not (math.isfinite(x) and math.isfinite(y)):
        return x * y
    negative = math.copysign(1, x) * math.copysign(1, y) < 0
    return fl(Fraction(x) * Fraction(y), int(negative))


def plus(x: float, y: float) -> float:
    if not (math.isfinite(x) and math.isfinite(y)):
        return x + y
    return fl(Fraction(x) + Fraction(y))


def over(x: float, y: float) -> float:
    """A quotient of numbers that are not negative."""
    if math.isnan(x) or math.isnan(y) or (x == 0 == y) or (math.isinf(x) and math.isinf(y)):
        return math.nan
    if math.isinf(x) or y == 0:
        return math.inf
    return 0.0 if math.isinf(y) else fl(Fraction(x) / Fraction(y))


def least(x: float, y: float) -> float:
    return math.nan if math.isnan(x) or math.isnan(y) else min(x, y)


def most(x: float, y: float) -> float:
    return math.nan if math.isnan(x) or math.isnan(y) else max(x, y)


def amax(numbers: Sequence[float]) -> float:
    if any(math.isnan(x) for x in numbers):
        return math.nan
    return max((abs(x) for x in numbers), default=0.0)


# Powers of two --------------------------------------------------------------------------------


def up_to_power(x: float) -> int:
    """The least e with x <= 2**e."""
    e = floor_log2(Fraction(x))
    return e if power(e) == Fraction(x) else e + 1


def exponent(a: float, block: Block) -> int:
    """The exponent of the scale of a block with this largest magnitude, above zero and finite."""
    fmt, p = block.element, floor_log2(Fraction(a))
    match block.scale_rule:
        case "floor":
            return p - fmt.emax
        case "ceil":
            return up_to_power(a) - fmt.emax
        case "even":
            unit = power(p - (fmt.precision - 1))  # half up to the digits of the element
            rounded = math.floor(Fraction(a) / unit + Fraction(1, 2)) * unit
            return floor_log2(rounded) - fmt.emax
        case "rceil":
            x = times(a, over(1.0, fmt.max))
            return up_to_power(x) if x else -127
        case "nearest":
            scale = Fraction(over(a, fmt.max))
            e = floor_log2(scale) if scale else -200
            return e + 1 if scale >= Fraction(3, 2) * power(e) else e
        case "clamped_up":
            return up_to_power(over(most(a, fl(Fraction(1e-4))), fmt.max))
    raise ValueError(block.scale_rule)


def power_scale(a: float, block: Block) -> tuple[int, float]:
    if math.isnan(a) or (math.isinf(a) and block.infinite == "nan"):
        return 255, math.nan
    if math.isinf(a):
        # 2**128 stands for it, which is its field of exponent.
        code = 255 - block.element.emax if block.scale_rule in ("floor", "ceil", "even") else 254
    elif a == 0 and block.scale_rule != "clamped_up":
        code = 0
    else:
        code = min(max(exponent(a, block) + 127, 0), 254)
    return code, float(power(127 - code))


# Digits and factors ---------------------------------------------------------------------------


def of_tensor(block: Block, a: float) -> float:
    if block.tensor_scale is None:
        return 1.0
    s = least(over(float(block.element.max * block.bound), a), LARGEST)
    return 1.0 if a == 0 or s == 0 else s


def digits(x: float, fmt: Format) -> int:
    """Code of a scale to nearest even, saturated."""
    if math.isnan(x):
        return (1 << (fmt.bits - 1)) - 1
    x = min(x, 2 * fmt.max)
    return round_exact(Fraction(x), fmt, overflow="saturate")[0]


def digit_scale(a: float, tensor: float, block: Block, more: float = 1.0) -> tuple[int, float]:
    scale = block.scale
    assert isinstance(scale, ScaleFormat)
    assert scale.number is not None
    fmt, top = scale.number, block.element.max
    bad = math.isnan(a) or (math.isinf(a) and block.infinite == "nan")
    if block.scale_rule == "two_level_eps":
        g = 1.0
        if block.tensor_scale is not None and tensor != 0:
            g = over(tensor, float(top * block.bound))
        exact = most(over(over(a, top), g), fmt.smallest_normal)
        code = digits(math.nan if bad else exact, fmt)
        return code, over(over(1.0, g), scale.decode(code))
    s = of_tensor(block, tensor)
    exact = times(a, times(s, over(1.0, top)))
    if more != 1:
        exact = times(exact, more)
    code = digits(math.nan if bad else exact, fmt)
    return code, least(over(1.0, times(scale.decode(code), over(1.0, s))), LARGEST)


def factor_scale(a: float, block: Block) -> tuple[float, float]:
    top, rule = block.element.max, block.scale_rule
    if rule == "one":
        return 1.0, 1.0
    if rule == "clamped":
        scale = over(most(a, fl(Fraction(1e-4))), top)
        return scale, over(1.0, scale)
    if rule.startswith("amax"):
        factor = least(over(top, a), LARGEST) if 0 < a < math.inf else 1.0
    elif math.isnan(a):
        factor = math.nan
    else:  # the quotient in binary64 first
        factor = 0.0 if math.isinf(a) else fl(Fraction(top / max(a, 1e-12)))
    if rule.endswith("_down") and 0 < factor < math.inf:
        e = floor_log2(Fraction(factor))
        factor = float(power(e)) if e >= -126 else 0.0
    return over(1.0, factor), factor


def block_scale(
    numbers: Sequence[float], block: Block, tensor: float, rounding: Rounding = RNE
) -> tuple[int | float, float]:
    """What is stored, and what the numbers are multiplied by, in binary32.

    tensor   largest magnitude of the tensor.
    """
    a = amax(numbers)
    if block.headroom != 1:
        a = times(a, fl(Fraction(block.headroom)))
    stored: int | float
    if isinstance(block.scale, Format):
        stored, factor = factor_scale(a, block)
    elif block.scale.number is None:
        stored, factor = power_scale(a, block)
    elif block.scale_rule.endswith("46"):
        six, four = (digit_scale(a, tensor, block, more) for more in (1.0, 1.5))
        better = error_of(numbers, block, tensor, four, rounding) < error_of(
            numbers, block, tensor, six, rounding
        )
        stored, factor = four if better else six
    else:
        stored, factor = digit_scale(a, tensor, block)
    return stored, times(factor, fl(Fraction(block.shrink))) if block.shrink != 1 else factor


def error_of(
    numbers: Sequence[float], block: Block, tensor: float, choice: tuple[int, float],
    rounding: Rounding,
) -> float:
    """Sum of errors or squares in binary32: the halves of the block, then neighbours."""
    code, factor = choice
    assert isinstance(block.scale, ScaleFormat)
    scale = times(block.scale.decode(code), over(1.0, of_tensor(block, tensor)))
    terms = []
    for x in numbers:
        value = times(value_of(element_code(x, factor, block, rounding), block), scale)
        error = abs(plus(value, -x))
        terms.append(times(error, error) if block.scale_rule == "mse46" else error)
    half = len(terms) // 2
    terms = [plus(x, y) for x, y in zip(terms[:half], terms[half:], strict=True)]
    while len(terms) > 1:
        terms = [plus(x, y) for x, y in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


# Elements -------------------------------------------------------------------------------------


def element_code(x: float, factor: float, block: Block, rounding: Rounding, word: int = 0) -> int:
    """Code of one number: one product in binary32, one rounding, saturation.

    word   R of a stochastic mode is in its top bits.
    """
    fmt, y = block.element, times(x, factor)
    if math.isnan(y):
        if not fmt.has_nan:
            return _stored(encode(0, Fraction(fmt.max), fmt), block)
        return {"fn": 0x7F, "fnuz": 0x80}.get(fmt.specials, 0x7E)
    sign = int(math.copysign(1, y) < 0)
    if math.isinf(y):
        return _stored(encode(sign, Fraction(fmt.max), fmt), block)
    code, _ = round_exact(
        Fraction(y), fmt, rounding, word=word, sign_of_zero=sign, overflow="saturate"
    )
    return _stored(code, block)


def _stored(code: int, block: Block) -> int:
    """Two's complement where elements are integers."""
    if not block.integers:
        return code
    return -(code & 0x7F) & 0xFF if code & 0x80 else code


def value_of(code: int, block: Block) -> float:
    """Value of an element without its scale."""
    if block.integers:
        return (code - 256 if code >= 128 else code) / 64
    datum = decode(code, block.element)
    return math.nan if datum.kind == "nan" else float(datum.value)
