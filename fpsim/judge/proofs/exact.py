"""Exact results of + - * / sqrt fma of numbers of a format, as whole numbers of small units.

Operands are binary32 codes that hold values of the format: significand times a power of two.
What lies below every digit that a rounding looks at is one odd last digit.
"""

from __future__ import annotations

from typing import NamedTuple

from fpsim.judge.proofs.specification import Magnitude, ValueGrid
from fpsim.judge.proofs.terms import EXPONENT_BITS, Theory, Truth, Word, choose

__all__ = [
    "ExactNumber", "HeldNumber", "decoded", "held", "hidden_digit", "product", "quotient", "root",
    "signed_sum",
]

#: Digits of quotients and roots before the odd last one: more than are looked at with 16 random
#: bits.
_DIGITS = 28


class ExactNumber(NamedTuple):
    """A sign and a magnitude."""

    negative: Truth
    magnitude: Magnitude


class HeldNumber(NamedTuple):
    """A binary32 code as a number of a format; the exact number means something if finite."""

    number: ExactNumber
    significand: Word  # of binary32, its last digits cut off: `precision` digits
    exponent: Word  # exponent field of binary32, 1 of its subnormals
    is_zero: Truth
    is_nan: Truth
    is_infinite: Truth
    is_signalling: Truth

    @property
    def negative(self) -> Truth:
        return self.number.negative

    @property
    def is_finite(self) -> Truth:
        return self.exponent != 255


def held(x: Word, grid: ValueGrid, quiet: bool) -> tuple[HeldNumber, Truth]:
    """A code, and whether it holds a value of the format (of NaNs the quiet ones, if `quiet`)."""
    field, fraction = x.cut(30, 23), x.cut(22, 0)
    quantum, p = grid.emin - grid.precision + 1, grid.precision
    top = grid.last_exponent + grid.precision
    nonfinite = field == 255
    units, in_range = decoded(x, quantum, top - quantum + 1)
    largest = units.theory.word(grid.last << (grid.last_exponent - quantum), units.width)
    in_range = in_range & (fraction.cut(23 - p, 0) == 0) & (units <= largest)
    nan = nonfinite & (fraction != 0)
    signalling = nan & (fraction.cut(22, 22) == 0)
    fits_nan = ~signalling if quiet else x.theory.truth(True)
    fits = choose(nonfinite, fits_nan, in_range)
    number = ExactNumber(x.is_negative, Magnitude(units, quantum))
    hidden, exponent = hidden_digit(field)
    significand = hidden.joined(fraction.cut(22, 24 - p))
    is_infinite = nonfinite & (fraction == 0)
    held_number = HeldNumber(
        number, significand, exponent, (field == 0) & (fraction == 0), nan, is_infinite, signalling
    )
    return held_number, fits


def hidden_digit(field: Word) -> tuple[Word, Word]:
    """The digit before the fraction, and the field that the exponent counts from."""
    theory, zero = field.theory, field == 0
    hidden = choose(zero, theory.word(0, 1), theory.word(1, 1))
    return hidden, choose(zero, theory.word(1, field.width), field)


def decoded(code: Word, unit: int, width: int) -> tuple[Word, Truth]:
    """The magnitude of a finite code in units of 2**unit, and whether it is a multiple of them."""
    exponent_bits, digits = EXPONENT_BITS[code.width]
    field, fraction = code.cut(code.width - 2, digits - 1), code.cut(digits - 2, 0)
    hidden, exponent = hidden_digit(field)
    wide, least = width + digits - 1, (1 << (exponent_bits - 1)) - 1 + unit
    counted = exponent.extended(wide) if wide >= exponent_bits else exponent.cut(wide - 1, 0)
    shifted = hidden.joined(fraction).extended(wide) << (counted - least)
    compared = exponent.extended(exponent_bits + 2)
    in_range = shifted.cut(digits - 2, 0) == 0
    if least > 1:
        in_range = in_range & (compared >= least)
    if least + width - 1 < 1 << exponent_bits:
        in_range = in_range & (compared < least + width - 1)
    is_zero = (field == 0) & (fraction == 0)
    units = choose(is_zero, code.theory.word(0, width), shifted.cut(wide - 1, digits - 1))
    return units, is_zero | in_range


def signed_sum(x: ExactNumber, y: ExactNumber) -> tuple[ExactNumber, Truth]:
    """The sum, whose sign is x's where it is zero; and whether it is zero."""
    unit = min(x.magnitude.unit, y.magnitude.unit)
    width = 1 + max(m.units.width + m.unit - unit for m in (x.magnitude, y.magnitude))
    a, b = (m.in_units(unit, width).units for m in (x.magnitude, y.magnitude))
    same = x.negative.same(y.negative)
    x_larger = a >= b
    units = choose(same, a + b, choose(x_larger, a - b, b - a))
    negative = choose(same | x_larger, x.negative, y.negative)
    return ExactNumber(negative, Magnitude(units, unit)), units == 0


def _placed(theory: Theory, digits: Word, places: Word, unit: int, width: int) -> Magnitude:
    """digits * 2**places, in `width` bits."""
    return Magnitude(digits.extended(width) << places.extended(width), unit)


def product(x: HeldNumber, y: HeldNumber) -> tuple[ExactNumber, Word]:
    """The product, and that of the significands."""
    width = x.significand.width + y.significand.width
    digits = x.significand.extended(width) * y.significand.extended(width)
    return ExactNumber(x.negative ^ y.negative, _product_of(x, y, digits)), digits


def _product_of(x: HeldNumber, y: HeldNumber, digits: Word) -> Magnitude:
    """The product of the significands, where the exponents put it."""
    a, b = x.number.magnitude, y.number.magnitude
    width, unit = a.units.width + b.units.width, a.unit + b.unit
    p = x.significand.width
    # A significand counts in units of 2**(field - 127 - (p - 1)).
    fields = x.exponent.extended(10) + y.exponent.extended(10)
    lowest = 2 * (127 + p - 1) + unit
    # Shifted up first and down by 2p then: no digit of a value is below the unit.
    places = fields + (2 * p) - lowest
    wide = width + 2 * p
    units = (digits.extended(wide) << places.extended(wide)).cut(wide - 1, 2 * p)
    zero = x.is_zero | y.is_zero
    return Magnitude(choose(zero, units ^ units, units), unit)


def quotient(x: HeldNumber, y: HeldNumber) -> ExactNumber:
    """x / y of numbers that are not zero, with an odd last digit for what goes on."""
    theory, p = x.exponent.theory, x.significand.width
    size = p + _DIGITS
    dividend = x.significand.extended(size) << _DIGITS
    divisor = y.significand.extended(size)
    digits = dividend // divisor
    odd = choose(dividend % divisor == 0, theory.word(0, 1), theory.word(1, 1))
    # (field x - field y) may be negative: counted from the least one.
    places = x.exponent.extended(10) - y.exponent.extended(10) + 256
    unit = -256 - _DIGITS - 1
    a = x.number.magnitude
    span = a.units.width
    # Quotients of the format's numbers span twice its range.
    low, width = 256 - span, 2 * span + size + 1
    magnitude = _placed(theory, digits.joined(odd), places - low, unit + low, width)
    return ExactNumber(x.negative ^ y.negative, magnitude)


def root(x: HeldNumber) -> ExactNumber:
    """sqrt(x) of a number above zero, with an odd last digit for what goes on."""
    theory, p = x.exponent.theory, x.significand.width
    # x = s * 2**(field - 127 - (p - 1)); with an even exponent the root halves it.
    is_odd = ((x.exponent + (p & 1)) & 1) == 1
    half = _DIGITS // 2
    size = p + 2 * half + 2
    radicand = choose(is_odd, x.significand.extended(size) << 1, x.significand.extended(size))
    radicand = radicand << (2 * half)
    digits = theory.unnamed(size // 2 + 1)
    wide = 2 * digits.width
    squared = digits.extended(wide) * digits.extended(wide)
    following = squared + (digits.extended(wide) << 1) + 1
    number = radicand.extended(wide)
    theory.definitions.append((squared <= number) & (following > number))
    odd = choose(squared == number, theory.word(0, 1), theory.word(1, 1))
    low_bit = choose(is_odd, theory.word(1, 10), theory.word(0, 10))
    # field - 127 - (p - 1) - low_bit is even; its half is at least -128 - p.
    exponent = x.exponent.extended(10) + 256 - 127 - (p - 1) - low_bit
    span = x.number.magnitude.units.width
    low = 128 - span
    magnitude = _placed(
        theory, digits.joined(odd), (exponent >> 1) - low, -128 - half - 1 + low,
        span + digits.width + span,
    )
    return ExactNumber(x.negative, magnitude)
