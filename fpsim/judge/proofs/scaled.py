"""Numbers as a few digits times a power of two, their sums, and the floats that hold them.

A range of hundreds of binades stays in the exponent, so terms are as wide as the digits that count.
What lies below every digit that a rounding looks at is one odd last digit.
"""

from __future__ import annotations

from typing import NamedTuple

from fpsim.judge.proofs.exact import HeldNumber
from fpsim.judge.proofs.specification import Magnitude
from fpsim.judge.proofs.terms import EXPONENT_BITS, Truth, Word, choose

__all__ = ["ScaledNumber", "ScaledSum", "placed", "product_of", "scaled", "sum_of"]

#: Bits of exponents, which count from the smallest one of their kind.
_BITS = 12


class ScaledNumber(NamedTuple):
    """digits * 2**(exponent + unit); a zero has the exponent 0."""

    negative: Truth
    digits: Word
    exponent: Word
    unit: int

    @property
    def is_zero(self) -> Truth:
        return self.digits == 0


class ScaledSum(NamedTuple):
    """A sum to its last digit, or with an odd one where the operands are far apart."""

    number: ScaledNumber
    apart: Truth  # the smaller operand is below half the last digit of any float
    first_is_larger: Truth  # by exponents


def scaled(x: HeldNumber) -> ScaledNumber:
    """A finite number of a format."""
    p = x.significand.width
    return ScaledNumber(x.negative, x.significand, x.exponent.extended(_BITS) - 1, 1 - 127 - p + 1)


def product_of(a: ScaledNumber, b: ScaledNumber) -> ScaledNumber:
    """Their product."""
    width = a.digits.width + b.digits.width
    digits = a.digits.extended(width) * b.digits.extended(width)
    exponent = choose(digits == 0, a.exponent ^ a.exponent, a.exponent + b.exponent)
    return ScaledNumber(a.negative ^ b.negative, digits, exponent, a.unit + b.unit)


def _from_unit(x: ScaledNumber, unit: int, width: int) -> ScaledNumber:
    exponent = choose(x.is_zero, x.exponent ^ x.exponent, x.exponent + (x.unit - unit))
    return ScaledNumber(x.negative, x.digits.extended(width), exponent, unit)


def _jammed(digits: Word, count: Word) -> Word:
    """Shifted down; the last digit is odd where one was lost."""
    shifted = digits >> count
    lost = (shifted << count) != digits
    return choose(lost, shifted | 1, shifted)


def sum_of(x: ScaledNumber, y: ScaledNumber, precision: int, sign_of_zero: Truth) -> ScaledSum:
    """The sum, exact where floats of so many digits would keep a part of the smaller operand."""
    unit, most = min(x.unit, y.unit), max(x.digits.width, y.digits.width)
    distance = precision + most + 2
    width = most + distance + 1
    a, b = _from_unit(x, unit, width), _from_unit(y, unit, width)
    larger = a.exponent >= b.exponent
    high, low = choose(larger, a.digits, b.digits), choose(larger, b.digits, a.digits)
    exponent = choose(larger, a.exponent, b.exponent)
    apart = exponent - choose(larger, b.exponent, a.exponent)
    high = high << distance
    low = _jammed(low << distance, apart.extended(width) if width > _BITS else apart)
    same = a.negative.same(b.negative)
    is_less = high < low
    digits = choose(same, high + low, choose(is_less, low - high, high - low))
    of_high = choose(larger, a.negative, b.negative)
    negative = choose(digits == 0, sign_of_zero, of_high ^ (is_less & ~same))
    number = ScaledNumber(negative, digits, exponent, unit - distance)
    return ScaledSum(number, apart > distance, larger)


def _normalised(digits: Word, most: Word | None = None) -> tuple[Word, Word]:
    """Shifted up until the leading digit is the top one, by no more than `most`; and how far."""
    theory, width = digits.theory, digits.width
    count = theory.word(0, _BITS)
    step = 1 << ((width - 1).bit_length() - 1)
    while step:
        free = digits.cut(width - 1, width - step) == 0
        if most is not None:
            free = free & (count + step <= most)
        digits = choose(free, digits << step, digits)
        count = choose(free, count + step, count)
        step >>= 1
    return digits, count


def float_of(
    x: ScaledNumber, width: int, *, cut: bool = False, odd: bool = False
) -> tuple[Word, ScaledNumber]:
    """The code of the nearest float, ties to even, and what the float is less than the number.

    cut, odd   toward zero instead; with an odd last digit where something was cut.
    """
    exponent_bits, p = EXPONENT_BITS[width]
    bias = (1 << (exponent_bits - 1)) - 1
    # Zeros above, until the smallest number of this unit is no smaller than a float may be.
    size = max(x.digits.width, p + 1, 2 - bias - x.unit)
    digits, least = x.digits.extended(size), x.unit + size - 2 + bias
    above = x.exponent + least  # of the field, were the top digit the leading one, one less
    normal, count = _normalised(digits, above)
    tail_width = size - p
    tail, last = normal.cut(tail_width - 1, 0), normal.cut(tail_width, tail_width) == 1
    half = 1 << (tail_width - 1)
    up = (tail > half) | ((tail == half) & last)
    if cut or odd:
        up = x.negative.theory.truth(False)
    if odd:
        normal = choose(tail != 0, normal | 1 << tail_width, normal)
    field = (above - count).extended(width + _BITS)
    leading = normal.cut(size - 1, tail_width).extended(width + _BITS)
    body = (field << (p - 1)) + leading
    body = choose(x.is_zero, body ^ body, choose(up, body + 1, body))
    infinity = ((1 << exponent_bits) - 1) << (p - 1)
    body = choose(body > infinity, body.theory.word(infinity, body.width), body)
    sign = choose(x.negative, x.digits.theory.word(1, 1), x.digits.theory.word(0, 1))
    code = sign.joined(body.cut(width - 2, 0))
    one = x.digits.theory.word(1, size) << tail_width
    lost = choose(up, one - tail.extended(size), tail.extended(size)) >> count.extended(size)
    rest = ScaledNumber(x.negative ^ up, lost.cut(x.digits.width - 1, 0), x.exponent, x.unit)
    return code, rest


def placed(x: ScaledNumber, low: int, high: int) -> Magnitude:
    """The magnitude in units of 2**low; from 2**high on, it is any number from there on."""
    width = max(high + 1 - low, x.digits.width + 1)
    normal, count = _normalised(x.digits)
    top = normal.extended(width) << (width - x.digits.width)
    # The leading digit is worth 2**(exponent + unit + digits - 1 - count), the top one 2**(high).
    worth = x.exponent - count  # at least -digits: the count of zero is not looked at
    nothing = worth ^ worth
    places = nothing - worth + (low + width - x.unit - x.digits.width)
    down = choose(places.is_negative, nothing, places)
    units = _jammed(top, down.extended(width))
    return Magnitude(units.extended(width + 1), low)  # room for a carry
