"""Calls of windowed units: a few products and an accumulator, aligned, cut, summed, rounded once.

The formulas of the calls are run on terms; what they read from a tile (factors, and exponents from
the tables) is given to them. Operands are any numbers of the format, zeros and subnormals too; an
accumulator, or a number of bfloat16, is zero or between 2**-40 and 2**40. Taken for granted:
products of few digits are exact in binary32, and a product with a power of two moves the exponent
(where the result is no normal number all that is used is that it is small).

One addend that is scaled and cut is a theorem of its own, with the bound of its whole number; a
call takes it for each of its addends and has to show that its premises hold: the scale is that of
the largest exponent. In calls with an accumulator or four terms the whole numbers may then be any
below the bound.

Source    docs/semantics.md §5; contracts: IEEE 754-2019 §5.4.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache, partial
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from fpsim.context import Context
from fpsim.judge.oracle.units import Ask, one_output
from fpsim.judge.proofs.contracts import PRODUCT, Contracts
from fpsim.judge.proofs.exact import HeldNumber, held, product
from fpsim.judge.proofs.replay import TermBuilder
from fpsim.judge.proofs.scaled import ScaledNumber, float_of, product_of, scaled
from fpsim.judge.proofs.specification import Magnitude, ValueGrid, grid_of, rounded
from fpsim.judge.proofs.terms import Real, Theory, Truth, Word, choose
from fpsim.judge.proofs.theorem import Finding, Point, SolverClaim, Theorem
from fpsim.kernels.by_unit import window
from fpsim.kernels.by_unit.tiles import WINDOW_31, WINDOW_32, WINDOW_64, WINDOW_PAIR
from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.arithmetic import to_whole
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load, load_float, store
from fpsim.products.by_unit.task import tile_variant
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.by_unit.window import _FIELDS, _numbers, _sums
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, E4M3, E5M2, Format
from fpsim.records.rounding import RNE, RTZ, Rounding
from fpsim.records.settings import Settings
from fpsim.records.units import MatrixUnit
from fpsim.unit_products import matmul

__all__ = ["theorems"]

#: Exponents of accumulators that are not zero.
_LEAST, _MOST = -40, 40
_POWER, _ADDEND = "product with a power of two", "addend"


class _Aligned(NamedTuple):
    """What an addend is by its own theorem, for the scale that belongs to the largest exponent."""

    code: Word  # of the float that is scaled
    scale: Word  # exponent field of the scale
    fits: Truth  # no exponent is larger than the largest
    size: Word  # of the whole number
    negative: Truth

    @property
    def signed(self) -> Word:
        return choose(self.negative, (self.size ^ self.size) - self.size, self.size)


class _Scaled(Contracts):
    """Contracts of products: of two operands, and with a power of two that a formula makes.

    aligned   addends of a call, whose theorem is taken for granted.
    """

    def __init__(
        self, theory: Theory, operands: list[tuple[Word, HeldNumber]], grid: ValueGrid,
        aligned: Sequence[_Aligned] = (),
    ) -> None:
        super().__init__(theory, operands, grid)
        self.aligned = aligned
        self._scaled: dict[int, Word] = {}

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
        if id(x) in self._scaled:
            return self._scaled[id(x)]
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
        for addend in self.aligned:
            if addend.code.term == x.bits.term:
                return self._as_granted(addend, zero, power)
        sum_of_fields = field + power  # 127 more than the field of the result
        self.theory.duties.append(("no product overflows", zero | (sum_of_fields < 127 + 255)))
        sign, small = (x.bits ^ y.bits) & 1 << 31, self.theory.unnamed(32)
        self.theory.definitions.append(small < 1 << 24)
        moved = (sum_of_fields - 127).extended(32) << 23 | x.bits & 0x7FFFFF
        normal = (field != 0) & (sum_of_fields > 127)
        body = choose(zero, self.theory.word(0, 32), choose(normal, moved, small))
        return self.theory.real(body | sign)


    def _as_granted(self, addend: _Aligned, zero: Truth, power: Word) -> Real:
        """An addend of the call, whose whole number is known where the scale is the right one."""
        right = zero | (addend.fits & (power == addend.scale))
        self.theory.duties.append(("the scale is that of the largest exponent", right))
        result = self.theory.real(self.theory.unnamed(32))
        self._scaled[id(result)] = addend.signed
        self._alive.append(result)
        return result


class _Operand(NamedTuple):
    """A number in binary32, and its exponent; that of subnormals is the smallest."""

    code: Word
    number: HeldNumber
    exponent: Word  # 10 bits, 128 more


def _operand(theory: Theory, name: str, grid: ValueGrid) -> tuple[_Operand, Truth]:
    code = theory.variable(name, 32)
    number, fits = held(code, grid, False)
    field = number.exponent.extended(10)
    least = theory.word(grid.emin + 127, 10)
    exponent = choose(field < least, least, field) + 1
    fits = fits & number.is_finite
    if grid.emin < _LEAST - 60:  # products of all its numbers are none of binary32
        fits = fits & (number.is_zero | _is_near_one(code))
    return _Operand(code, number, exponent), fits


def _is_near_one(code: Word) -> Truth:
    field = code.cut(30, 23)
    return (field >= 127 + _LEAST) & (field <= 127 + _MOST)


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


def _multiple(addend: _Addend, top: Word, digits: int) -> Word:
    """The addend's magnitude in units of 2**(emax - digits), cut; 0 of a zero."""
    width = 28 + digits
    below = (top - addend.power).extended(width) + addend.places
    multiple = (addend.digits.extended(width) << digits) >> below
    return choose(addend.counts, multiple, multiple ^ multiple)


def _is_sum(
    code: Word, aligned: list[_Aligned], top: Word, digits: int, rounding: Rounding
) -> Truth:
    """Whole multiples of 2**(emax - digits), their exact sum, one rounding to 24 digits."""
    width = 28 + digits
    total = top.theory.word(0, width)
    for addend in aligned:
        multiple = addend.size.extended(width)
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
    digits = theory.word(1, 1).joined(code.cut(22, 0))
    addend = _Addend(code.is_negative, digits, 23, field + 129, field + 129, ~zero)
    return code, addend, zero | _is_near_one(code)


def _product_addend(u: _Operand, v: _Operand) -> _Addend:
    exact, digits = product(u.number, v.number)
    zero = u.number.is_zero | v.number.is_zero
    power = u.number.exponent.extended(10) + v.number.exponent.extended(10) + 2
    return _Addend(
        exact.negative, digits, digits.width - 2, power, u.exponent + v.exponent, ~zero
    )


def _code_of_product(u: _Operand, v: _Operand) -> Word:
    return float_of(product_of(scaled(u.number), scaled(v.number)), 32)[0]


def _aligned(code: Word, addend: _Addend, top: Word, digits: int, free: bool) -> _Aligned:
    """What an addend is, scaled by 2**(digits - emax) and cut; `free`: any number below its bound.

    Products are below 4, accumulators below 2.
    """
    size = _multiple(addend, top, digits).cut(31, 0)
    if free:
        anything = top.theory.unnamed(32)
        top.theory.definitions.append(anything < _bound(addend, digits))
        size = choose(addend.counts, anything, anything ^ anything)
    fits = ~addend.counts | ((top >= addend.exponent) & (top >= addend.power))
    # 127 + digits - emax, of emax in 10 bits, 256 more.
    scale = (top ^ top) - top + (127 + 256 + digits)
    return _Aligned(code, scale, fits, size, addend.negative)


def _bound(addend: _Addend, digits: int) -> int:
    return 1 << digits + (1 if addend.places == 23 else 2)


def _unit(fmt: Format, terms: int, digits: int, rounding: Rounding) -> MatrixUnit:
    return MatrixUnit(
        f"PROOF_{fmt}_{terms}_{digits}_{rounding}", "a call that is proved", (fmt,), BINARY32,
        terms, digits, rounding=rounding,
    )


def _claim(unit: MatrixUnit, with_start: bool) -> SolverClaim:
    theory, fmt = Theory(), unit.inputs[0]
    assert unit.window is not None
    grid = grid_of(fmt)
    pairs, premises = [], []
    for k in range(unit.terms):
        (u, fits_u), (v, fits_v) = (_operand(theory, f"{side}{k}", grid) for side in "ab")
        pairs.append((u, v))
        premises += [fits_u, fits_v]
    addends = [_product_addend(u, v) for u, v in pairs]
    codes = [_code_of_product(u, v) for u, v in pairs]
    c = theory.word(0, 32)
    if with_start:
        c, start, fits = _accumulator(theory)
        premises.append(fits)
        addends, codes = [start, *addends], [c, *codes]
    top = _largest(addends)
    free = with_start or unit.terms > 2
    aligned = [
        _aligned(code, addend, top, unit.window, free)
        for code, addend in zip(codes, addends, strict=True)
    ]
    operands = [(o.code, o.number) for pair in pairs for o in pair]
    builder = TermBuilder(theory, _Scaled(theory, operands, grid, aligned))
    code = _called(builder, UnitSettings(unit, fmt, fmt, Settings(BINARY32)), pairs, c)
    return SolverClaim(theory, _is_sum(code, aligned, top, unit.window, unit.rounding), premises)


def _scaled_and_cut(factors: tuple[Any, ...], scale: Any) -> Any:
    """What the formulas of calls make of an addend: of a product, or of an accumulator alone."""
    if len(factors) == 1:
        return to_whole(factors[0] * scale)
    products = _functions(lambda: [[factors]], list)["_products"]
    ((whole,),) = products(to_whole, (1,), *[None] * 6, [scale])
    return whole


@cache
def _addend_kernel(n_factors: int) -> Any:
    @formula
    def addend(u, v, scale):  # type: ignore[no-untyped-def]
        return _scaled_and_cut((u, v)[:n_factors], scale)

    @compiled
    def loop(u, v, scale, wholes):  # type: ignore[no-untyped-def]
        like = load(wholes, 0)
        whole = addend(load_float(u, 0, like), load_float(v, 0, like), load_float(scale, 0, like))
        store(wholes, 0, whole)

    return loop


def _check_addend(point: Point) -> Finding:
    """The compiled formula and the exact product, cut."""
    codes = [point[name] for name in ("u", "v", "c") if name in point]
    numbers = [np.uint32(code).view(np.float32) for code in codes]
    wholes, power = np.zeros(16, np.uint32), np.uint32(point["scale"] << 23).view(np.float32)
    arrays = [np.full(16, x, np.float32) for x in (numbers[0], numbers[-1], power)]
    _addend_kernel(len(codes))(*arrays, wholes)
    exact = math.prod((Fraction(float(x)) for x in (*numbers, power)), start=Fraction(1))
    return Finding(f"{int(wholes[0]):#010x}", f"{math.trunc(exact) & 0xFFFFFFFF:#010x}")


def _addend_claim(fmt: Format | None, digits: int) -> SolverClaim:
    """A product, or an accumulator, scaled by any power of two and cut to a whole number."""
    theory, grid = Theory(), grid_of(fmt or BINARY32)
    power = theory.variable("scale", 8)
    top = (power ^ power).extended(10) - power.extended(10) + (127 + 256 + digits)
    operands: list[tuple[Word, HeldNumber]] = []
    if fmt is None:
        code, addend, fits = _accumulator(theory)
        premises = [fits]
    else:
        (u, fits_u), (v, fits_v) = (_operand(theory, name, grid) for name in "uv")
        code, addend, premises = _code_of_product(u, v), _product_addend(u, v), [fits_u, fits_v]
        operands = [(u.code, u.number), (v.code, v.number)]
    builder = TermBuilder(theory, _Scaled(theory, operands, grid))
    words = [word for word, _ in operands] or [code]
    factors = tuple(builder.floats(theory.real(word)) for word in words)
    scale = builder.floats(theory.real(power.extended(32) << 23))
    whole = builder.word(_scaled_and_cut(factors, scale))
    aligned = _aligned(code, addend, top, digits, free=False)
    premises += [(power > 0) & (power < 255), aligned.fits]
    bounded = _multiple(addend, top, digits) < _bound(addend, digits)
    return SolverClaim(theory, (whole == aligned.signed) & bounded, premises)


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


_ABOUT = "calls of windowed units: products of all numbers of a format, cut, summed, rounded"


def _theorem(
    fmt: Format, terms: int, digits: int, rounding: Rounding, with_start: bool
) -> Theorem:
    unit = _unit(fmt, terms, digits, rounding)
    beside = " and an accumulator" if with_start else ""
    return Theorem(
        f"call {fmt} {terms} terms{beside} window {digits} {rounding}", "unit calls",
        f"{terms} products of {fmt} numbers{beside} are cut to {digits} digits below the "
        "largest exponent, summed and rounded once",
        partial(_claim, unit, with_start), partial(_check, unit), (PRODUCT, _POWER, _ADDEND),
        about=_ABOUT,
    )


def _addend_theorem(fmt: Format | None, digits: int) -> Theorem:
    what = f"product of two {fmt} numbers" if fmt else "accumulator"
    return Theorem(
        f"addend {fmt or 'accumulator'} window {digits}", "unit addends",
        f"one {what}, scaled by any power of two and cut, is its multiple of the unit",
        partial(_addend_claim, fmt, digits), _check_addend, (PRODUCT, _POWER),
        quick=(fmt, digits) == (E5M2, 24),
        about="one addend of a call, scaled by any power of two and cut to a whole number",
    )


def theorems() -> Iterator[Theorem]:
    """Sums to nearest and cut, in lanes of words: two terms, four with an accumulator."""
    for digits in (27, 24):
        yield _addend_theorem(None, digits)
    for fmt in (E5M2, E4M3, BINARY16, BFLOAT16):
        for digits in (27, 24):
            yield _addend_theorem(fmt, digits)
        for terms, digits, rounding in ((2, 27, RNE), (4, 27, RNE), (4, 24, RTZ)):
            for with_start in (False, True):
                yield _theorem(fmt, terms, digits, rounding, with_start)
