"""Calls of windowed units: a few products and an accumulator, aligned, cut, summed, rounded once.

The formulas of the calls are run on terms; what they read from a tile (factors, and exponents from
the tables) is given to them. Operands are any numbers of the format, zeros and subnormals too; an
accumulator is zero or a number of 24 digits between 2**-40 and 2**40. Taken for granted: products
of few digits are exact in binary32, and a product with a power of two moves the exponent
(where the result is no normal number all that is used is that it is small).

Source    docs/semantics.md §5; contracts: IEEE 754-2019 §5.4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from fpsim.context import Context
from fpsim.judge.oracle.units import Ask, one_output
from fpsim.judge.proofs.contracts import PRODUCT, Contracts
from fpsim.judge.proofs.exact import HeldNumber, held, product
from fpsim.judge.proofs.replay import TermBuilder
from fpsim.judge.proofs.scaled import ScaledNumber, float_of, product_of
from fpsim.judge.proofs.specification import Magnitude, ValueGrid, grid_of, rounded
from fpsim.judge.proofs.terms import Real, Theory, Truth, Word, choose
from fpsim.judge.proofs.theorem import Finding, Point, SolverClaim, Theorem
from fpsim.kernels.by_unit import window
from fpsim.kernels.by_unit.tiles import WINDOW_31, WINDOW_32, WINDOW_64, WINDOW_PAIR
from fpsim.products.by_unit.task import tile_variant
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.by_unit.window import _FIELDS, _numbers, _sums
from fpsim.records.formats import BINARY32, E5M2, Format
from fpsim.records.rounding import RNE, RTZ, Rounding
from fpsim.records.settings import Settings
from fpsim.records.units import MatrixUnit
from fpsim.unit_products import matmul

__all__ = ["theorems"]

#: Exponents of accumulators that are not zero.
_LEAST, _MOST = -40, 40
_POWER = "product with a power of two"


class _Scaled(Contracts):
    """Contracts of products: of two operands, and with a power of two that a formula makes."""

    def get(self, name: str, usual: Any) -> Any:
        rules = {"fmul": self.product, "fptosi": self.whole, "itofp": self.rounded}
        return rules.get(name, usual)

    def product(self, x: Real, y: Real) -> Real:
        """Of finite operands the exact product; else a number is moved."""
        a, b = self._number(x), self._number(y)
        if a is None or b is None:
            return self._moved(x, y)
        code, _ = float_of(product_of(a, b), 32)
        return self.theory.real(code)

    def whole(self, x: Real, width: int, signed: bool) -> Word:
        """The whole number toward zero, by its digits."""
        assert signed
        assert width == x.width == 32
        field = x.bits.cut(30, 23).extended(width)
        self.theory.duties.append(("the whole number has 31 bits", field < 127 + 31))
        digits = self.theory.word(1, 1).joined(x.bits.cut(22, 0)).extended(2 * width)
        # One digit before the point for the field 127.
        places = choose(field < 127, field ^ field, field - 126).extended(2 * width)
        size = ((digits << places) >> 24).cut(width - 1, 0)
        return choose(x.bits.is_negative, (size ^ size) - size, size)

    def rounded(self, word: Word, width: int, signed: bool, mode: str = "RNE") -> Real:
        """A whole number as a float, to nearest even or cut."""
        negative = word.is_negative if signed else self.theory.truth(False)
        size = choose(negative, (word ^ word) - word, word)
        number = ScaledNumber(negative, size, self.theory.word(0, 12), 0)
        if mode not in ("RNE", "RTZ") or width != 32:
            return word.to_real(width, signed, mode)
        return self.theory.real(float_of(number, width, cut=mode == "RTZ")[0])

    def _moved(self, x: Real, y: Real) -> Real:
        """x times a power of two; a zero times any number."""
        field, power = (v.bits.cut(30, 23).extended(10) for v in (x, y))
        zero = x.bits << 1 == 0
        plain = (power != 255) & (zero | ((y.bits.cut(22, 0) == 0) & (power != 0)))
        self.theory.duties.append(("the factor is a power of two", plain))
        sum_of_fields = field + power  # 127 more than the field of the result
        self.theory.duties.append(("no product overflows", zero | (sum_of_fields < 127 + 255)))
        sign, small = (x.bits ^ y.bits) & 1 << 31, self.theory.unnamed(32)
        self.theory.definitions.append(small < 1 << 24)
        moved = (sum_of_fields - 127).extended(32) << 23 | x.bits & 0x7FFFFF
        normal = (field != 0) & (sum_of_fields > 127)
        body = choose(zero, self.theory.word(0, 32), choose(normal, moved, small))
        return self.theory.real(body | sign)


class _Operand(NamedTuple):
    """A binary16 number in binary32, and its exponent; that of subnormals is the smallest."""

    code: Word
    number: HeldNumber
    exponent: Word  # 10 bits, 128 more


def _operand(theory: Theory, name: str, grid: ValueGrid) -> tuple[_Operand, Truth]:
    code = theory.variable(name, 32)
    number, fits = held(code, grid, False)
    field = number.exponent.extended(10)
    least = theory.word(grid.emin + 127, 10)
    exponent = choose(field < least, least, field) + 1
    return _Operand(code, number, exponent), fits & number.is_finite


def _functions(read: Callable[[], Any], tops: Callable[[], Any]) -> dict[str, Any]:
    """The formulas of calls, which read their operands from these."""
    names = dict(vars(window)) | {
        "values": lambda *_: read(), "exponents": lambda *_: tops(),
    }
    for name, value in vars(window).items():
        if isinstance(value, FunctionType) and value.__module__ == window.__name__:
            names[name] = FunctionType(value.__code__, names, name, value.__defaults__)
    return names


#: The formulas by lanes.
_CALLS = {
    WINDOW_31: "_in_words_31", WINDOW_32: "_in_words_32", WINDOW_PAIR: "_in_pairs",
    WINDOW_64: "_in_64",
}


def _called(
    builder: TermBuilder, settings: UnitSettings, pairs: list[tuple[_Operand, _Operand]], c: Word
) -> Word:
    """Bits of the sum that the lanes of the dispatcher's choice give."""
    sums = _sums(settings)
    assert sums is not None
    place, bias, zero_left, zero_right = _FIELDS[32]
    theory = builder.theory
    variant, _ = tile_variant(sums.lanes, settings, sums.store, False, 32, sums=sums.how)
    constants = _numbers(settings, sums, sums.lanes)
    numbers = tuple(builder.bits(theory.word(int(n), 32)) for n in constants)

    def field(operand: _Operand, more: int, zero: int) -> Any:
        exponent = (operand.exponent - 128).sign_extended(32) + more
        exponent = choose(operand.number.is_zero, theory.word(zero, 32), exponent)
        return builder.bits(exponent << place)

    def read() -> Iterator[Any]:
        for u, v in pairs:
            yield [(builder.floats(theory.real(u.code)), builder.floats(theory.real(v.code)))]

    def tops() -> Iterator[Any]:
        for u, v in pairs:
            yield [field(u, bias, zero_left) + field(v, 0, zero_right)]

    what = variant.terms, variant.sums, variant.quiet, variant.has_fma, variant.has_adders
    accumulator = (builder.floats(theory.real(c)),)
    (total,) = _functions(read, tops)[_CALLS[sums.lanes]](
        what, accumulator, None, (None,), None, None, None, numbers
    )
    return builder.word(total)


# Specification -------------------------------------------------------------------------------


class _Addend(NamedTuple):
    """digits * 2**(power - places), and the exponent for emax, each in 10 bits, 256 more."""

    negative: Truth
    digits: Word
    places: int
    power: Word
    exponent: Word
    counts: Truth  # zeros do not


def _largest(addends: list[_Addend]) -> Word:
    top = addends[0].exponent.theory.word(0, 10)
    for addend in addends:
        exponent = choose(addend.counts, addend.exponent, top)
        top = choose(exponent > top, exponent, top)
    return top


def _is_sum(code: Word, addends: list[_Addend], digits: int, rounding: Rounding) -> Truth:
    """Whole multiples of 2**(emax - digits), their exact sum, one rounding to 24 digits."""
    top, width = _largest(addends), 28 + digits
    total = top.theory.word(0, width)
    for addend in addends:
        below = (top - addend.power).extended(width) + addend.places
        multiple = (addend.digits.extended(width) << digits) >> below
        multiple = choose(addend.counts, multiple, multiple ^ multiple)
        total = choose(addend.negative, total - multiple, total + multiple)
    negative = total.is_negative
    size = choose(negative, (total ^ total) - total, total)
    # No sum leaves the range of normal numbers: the grid is that of the whole numbers.
    grid = ValueGrid(24, 23, (1 << 24) - 1, width - 24)
    units = rounded(Magnitude(size, 0), negative, grid, rounding.name).units
    return _is_number(code, units, top, digits) & (
        (units == 0) | code.is_negative.same(negative)  # the sign of a zero is settled later
    )


def _is_number(code: Word, units: Word, top: Word, digits: int) -> Truth:
    """Whether the magnitude of a normal code, or zero, is units * 2**(emax - digits)."""
    field, width = code.cut(30, 23).extended(12), units.width + 24
    significand = code.theory.word(1, 1).joined(code.cut(22, 0)).extended(width)
    # significand * 2**(field - 150) and units * 2**(top - 256 - digits), 23 places up.
    places = field + (23 - 150 + 256 + digits) - top.extended(12)
    same = (significand << places.extended(width)) == units.extended(width) << 23
    return choose(units == 0, code << 1 == 0, same & (places < width - 24) & (field != 0))


def _accumulator(theory: Theory) -> tuple[Word, _Addend, Truth]:
    code = theory.variable("c", 32)
    field = code.cut(30, 23).extended(10)
    zero = code << 1 == 0
    in_range = (field >= 127 + _LEAST) & (field <= 127 + _MOST)
    digits = theory.word(1, 1).joined(code.cut(22, 0))
    addend = _Addend(code.is_negative, digits, 23, field + 129, field + 129, ~zero)
    return code, addend, zero | in_range


def _unit(fmt: Format, terms: int, digits: int, rounding: Rounding) -> MatrixUnit:
    return MatrixUnit(
        f"PROOF_{fmt}_{terms}_{digits}_{rounding}", "a call that is proved", (fmt,), BINARY32,
        terms, digits, rounding=rounding,
    )


def _claim(unit: MatrixUnit, with_start: bool) -> SolverClaim:
    theory, fmt = Theory(), unit.inputs[0]
    grid = grid_of(fmt)
    names = [(f"a{k}", f"b{k}") for k in range(unit.terms)]
    pairs, premises = [], []
    for pair in names:
        (u, fits_u), (v, fits_v) = (_operand(theory, name, grid) for name in pair)
        pairs.append((u, v))
        premises += [fits_u, fits_v]
    if with_start:
        c, start, fits = _accumulator(theory)
        premises.append(fits)
    else:
        c, start = theory.word(0, 32), None
    operands = [(o.code, o.number) for pair in pairs for o in pair]
    builder = TermBuilder(theory, _Scaled(theory, operands, grid))
    settings = UnitSettings(unit, fmt, fmt, Settings(BINARY32))
    code = _called(builder, settings, pairs, c)
    addends = [] if start is None else [start]
    for u, v in pairs:
        exact, digits = product(u.number, v.number)
        zero = u.number.is_zero | v.number.is_zero
        addends.append(_Addend(
            exact.negative, digits, 2 * fmt.precision - 2,
            u.number.exponent.extended(10) + v.number.exponent.extended(10) + 2,
            u.exponent + v.exponent, ~zero,
        ))
    assert unit.window is not None
    return SolverClaim(theory, _is_sum(code, addends, unit.window, unit.rounding), premises)


def _check(unit: MatrixUnit, point: Point) -> Finding:
    """The compiled product, alone and among equal ones, and the oracle."""
    a, b = (
        np.array([point[f"{side}{k}"] for k in range(unit.terms)], np.uint32).view(np.float32)
        for side in "ab"
    )
    c = np.uint32(point.get("c", 0))
    context = Context(BINARY32)
    fmt = unit.inputs[0]
    narrow = Context(fmt)
    results = set()
    for n in (1, 16):
        left, right = narrow.wrap(np.tile(a, (n, 1))), narrow.wrap(np.tile(b, (n, 1)).T.copy())
        start = context.wrap(np.full((n, n), c).view(np.float32))
        result = matmul(left, right, unit, context=context, accumulator=start)
        results |= {int(code) for code in result.codes().reshape(-1)}
    left_codes, right_codes = (narrow.wrap(side).codes().tolist() for side in (a, b))
    ask = Ask(unit, fmt, fmt, Settings(BINARY32))
    datum, _ = one_output(ask, left_codes, right_codes, int(c))
    value = np.float32(float(datum.value)) if datum.kind == "finite" else np.float32(np.nan)
    shown = " or ".join(f"{code:#010x}" for code in sorted(results))
    return Finding(shown, f"{int(value.view(np.uint32)):#010x}")


def _theorem(
    fmt: Format, terms: int, digits: int, rounding: Rounding, with_start: bool
) -> Theorem:
    unit = _unit(fmt, terms, digits, rounding)
    beside = " and an accumulator" if with_start else ""
    return Theorem(
        f"call {fmt} {terms} terms{beside} window {digits} {rounding}", "unit calls",
        f"{terms} products of {fmt} numbers{beside} are cut to {digits} digits below the "
        "largest exponent, summed and rounded once",
        partial(_claim, unit, with_start), partial(_check, unit), (PRODUCT, _POWER),
        about="calls of windowed units: products of all numbers of a format, cut, summed, rounded",
    )


def theorems() -> Iterator[Theorem]:
    """Sums to nearest and cut, in lanes of words."""
    for digits, rounding in ((27, RNE), (23, RTZ)):
        yield _theorem(E5M2, 2, digits, rounding, False)
