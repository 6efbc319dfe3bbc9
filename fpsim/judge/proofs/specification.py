"""What rounding once means, in the space of values.

A magnitude is a whole number M of units. ulp is the distance of neighbours at M, a power of two:
the leading digit of M shifted down by precision - 1, but no less than the distance of the
subnormals. M = low + rest with low a multiple of ulp and 0 <= rest < ulp; the mode says whether low
becomes low + ulp. Nothing here knows exponent fields, thresholds or tables, and a format is read
by its four defining numbers alone.

Source    IEEE 754-2019 §3.4, §4.3, §7.4, §7.5; docs/semantics.md §1.
"""

from __future__ import annotations

from typing import NamedTuple

from fpsim.judge.proofs.terms import Theory, Truth, Word, choose
from fpsim.records.formats import Format

__all__ = [
    "STOCHASTIC", "Chance", "Magnitude", "Rounded", "ValueGrid", "grid_of", "magnitude_of",
    "rounded",
]

#: Modes that take random bits.
STOCHASTIC = ("SR", "SR_EQUAL")


class ValueGrid(NamedTuple):
    """The values of a format: digits, exponents of the smallest normal and of the last value."""

    precision: int
    emin: int
    last: int  # the largest value is last * 2**last_exponent
    last_exponent: int


def grid_of(fmt: Format) -> ValueGrid:
    """From the number of exponent bits, the digits, the bias, and how the last codes are used.

    >>> from fpsim.records.formats import E4M3FN
    >>> grid = grid_of(E4M3FN)
    >>> grid.last * 2**grid.last_exponent
    448
    """
    top_field = 2**fmt.exponent_bits - (2 if fmt.specials == "ieee" else 1)
    # One code of the top exponent is NaN where the specials are "fn".
    last = 2**fmt.precision - (2 if fmt.specials == "fn" else 1)
    return ValueGrid(fmt.precision, 1 - fmt.bias, last, top_field - fmt.bias - fmt.precision + 1)


class Magnitude(NamedTuple):
    """A magnitude as a whole number of units of 2**unit, which may be below what is needed."""

    units: Word
    unit: int

    @property
    def theory(self) -> Theory:
        return self.units.theory

    def of(self, significand: int, exponent: int) -> Word:
        """significand * 2**exponent in these units."""
        if exponent < self.unit:
            raise ValueError(f"2**{exponent} is no multiple of the unit 2**{self.unit}")
        return self.theory.word(significand << (exponent - self.unit), self.units.width)

    def in_units(self, unit: int, width: int) -> Magnitude:
        """The same in smaller units, in so many bits."""
        wide = self.units.extended(width)
        return Magnitude(wide << (self.unit - unit), unit)


def magnitude_of(code: Word) -> Magnitude:
    """The magnitude of a finite binary32 or binary64 code, in units of its smallest subnormal.

    It takes 278 bits of binary32.
    """
    exponent_bits, digits = {32: (8, 24), 64: (11, 53)}[code.width]
    field = code.cut(code.width - 2, digits - 1)
    fraction = code.cut(digits - 2, 0)
    width = digits + (1 << exponent_bits) - 2
    is_subnormal = field == 0
    hidden = choose(is_subnormal, code.theory.word(0, 1), code.theory.word(1, 1))
    places = choose(is_subnormal, code.theory.word(0, exponent_bits), field - 1)
    significand = hidden.joined(fraction).extended(width)
    unit = 3 - (1 << (exponent_bits - 1)) - digits
    return Magnitude(significand << places.extended(width), unit)


class Chance(NamedTuple):
    """The random number of a stochastic rounding: the first r digits of a word of 32.

    r is `bits`, and one more for each binade below the smallest normal number, at most `most`.
    """

    word: Word
    bits: int
    most: int


class Rounded(NamedTuple):
    """What one rounding gives on a grid that goes on above the largest value."""

    units: Word
    inexact: Truth
    tiny: Truth
    over: Truth


def _goes_up(mode: str, rest: Word, ulp: Word, is_odd: Truth, negative: Truth) -> Truth:
    """Whether a tail takes the magnitude up in a deterministic mode; a tail of zero never does."""
    inexact = rest != 0
    # Twice the tail may need one bit more than the magnitude.
    twice = rest.extended(rest.width + 1) << 1
    unit = ulp.extended(rest.width + 1)
    above, tie = twice > unit, (twice == unit) & inexact
    rules: dict[str, Truth] = {
        "RNE": above | (tie & is_odd),
        "RNA": above | tie,
        "RNZ": above,
        "RTZ": rest.theory.truth(False),
        "RTP": inexact & ~negative,
        "RTN": inexact & negative,
        "RAZ": inexact,
        "RTO": inexact & ~is_odd,
    }
    return rules[mode]


def _carries(rest: Word, ulp: Word, word: Word, r: int) -> Truth:
    """floor(2**r rest / ulp) + R >= 2**r, as rest * 2**r >= (2**r - R) * ulp."""
    width = rest.width + r + 1
    missing = rest.theory.word(1 << r, r + 1) - word.cut(31, 32 - r).extended(r + 1)
    # ulp is a power of two: each digit of the other factor puts it somewhere else.
    unit = ulp.extended(width)
    wanted = nothing = rest.theory.word(0, width)
    for i in range(r + 1):
        wanted = wanted | choose(missing.cut(i, i) == 1, unit << i, nothing)
    return (rest.extended(width) << r) >= wanted


def _drawn_up(
    mode: str, magnitude: Magnitude, rest: Word, ulp: Word, grid: ValueGrid, chance: Chance | None
) -> Truth:
    """Whether a tail takes the magnitude up in a stochastic mode."""
    assert chance is not None, "a stochastic mode takes random bits"
    word, bits, most = chance
    if mode == "SR_EQUAL":
        return (rest != 0) & word.is_negative
    up = _carries(rest, ulp, word, bits)
    for more in range(1, most - bits + 1):
        is_below = magnitude.units < magnitude.of(1, grid.emin - more + 1)
        up = choose(is_below, _carries(rest, ulp, word, bits + more), up)
    return up


def rounded(
    magnitude: Magnitude, negative: Truth, grid: ValueGrid, mode: str, tininess: str = "after",
    chance: Chance | None = None,
) -> Rounded:
    """A magnitude rounded once. Zero is exact; stochastic modes look for tininess before."""
    units = magnitude.units
    smallest = magnitude.of(1, grid.emin)
    # What is below a neighbour's distance, all ones: of a number of p digits, and of the quantum.
    free = units.filled >> grid.precision
    quantum = magnitude.of(1, max(grid.emin - grid.precision + 1, magnitude.unit))

    def result(below: Word) -> tuple[Word, Truth]:
        ulp, rest, low = below + 1, units & below, units & ~below
        is_odd = (units & ulp) != 0
        if mode in STOCHASTIC:
            up = _drawn_up(mode, magnitude, rest, ulp, grid, chance)
        else:
            up = _goes_up(mode, rest, ulp, is_odd, negative)
        return choose(up, (units | below) + 1, low), rest != 0

    value, inexact = result(free | (quantum - 1))
    over = value > magnitude.of(grid.last, grid.last_exponent)
    before = tininess == "before" or mode in STOCHASTIC
    tiny = (units if before else result(free)[0]) < smallest
    return Rounded(value, inexact, tiny & (units != 0), over)
