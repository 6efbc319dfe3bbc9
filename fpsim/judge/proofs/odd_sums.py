"""Sums and fused multiply-adds of bfloat16, whose range is as wide as that of the lanes.

Two steps. What the formulas of sums give in the lanes is the exact sum, cut, with an odd last digit
where something was cut off: a theorem of digits, whatever the exponents. Then the step rounds any
number of the lanes that such a sum may be, as the exact sum is rounded: rounding to odd with two
digits more loses nothing (a published theorem, taken for granted).

Source    Boldo, Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
          rounding to odd", IEEE Transactions on Computers 57 (2008); docs/semantics.md §3.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from fpsim.judge.oracle import OracleSettings, convert, operate
from fpsim.judge.proofs.contracts import IEEE, PRODUCT, TWO_SUM, Contracts
from fpsim.judge.proofs.elementwise import replayed
from fpsim.judge.proofs.exact import ExactNumber, HeldNumber, held, hidden_digit
from fpsim.judge.proofs.operations import RANDOM_DIGITS, check, expected_of
from fpsim.judge.proofs.outcomes import agrees
from fpsim.judge.proofs.replay import TermBuilder
from fpsim.judge.proofs.scaled import ScaledNumber, float_of, placed, product_of, scaled, sum_of
from fpsim.judge.proofs.specification import Magnitude, grid_of, magnitude_of
from fpsim.judge.proofs.terms import EXPONENT_BITS, Theory, Truth, Word, both, choose
from fpsim.judge.proofs.theorem import Finding, Point, SolverClaim, Theorem
from fpsim.kernels.compiling import compiled
from fpsim.kernels.elementwise.cut import cut_sum
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load, load_float, store
from fpsim.kernels.lanes.vectors import widen
from fpsim.kernels.rounding.to_odd import sum_to_odd
from fpsim.records.formats import BFLOAT16, BINARY32, BINARY64
from fpsim.records.rounding import RNE, RTN, RTO, SR
from fpsim.records.settings import Settings

__all__ = ["theorems"]

_ODD, _SUM = "rounding to odd", "sum to odd"

_GRID = grid_of(BFLOAT16)
_QUANTUM = _GRID.emin - _GRID.precision + 1

_OVERFLOW = 4

#: Lanes of the operations: their sums are these floats.
_WIDTHS = {"add": 32, "fma": 64}


class _SumOperands(NamedTuple):
    """The operands of a sum, the first one a product where there are three."""

    codes: list[Word]
    numbers: list[HeldNumber]
    premises: list[Truth]

    @property
    def addends(self) -> tuple[ScaledNumber, ScaledNumber]:
        *factors, last = map(scaled, self.numbers)
        return (product_of(*factors) if len(factors) == 2 else factors[0]), last

    @property
    def are_finite(self) -> Truth:
        return both(number.is_finite for number in self.numbers)


def _operands(theory: Theory, operation: str) -> _SumOperands:
    codes = [theory.variable(name, 32) for name in ("xyz" if operation == "fma" else "xy")]
    read = [held(code, _GRID, False) for code in codes]
    return _SumOperands(codes, [number for number, _ in read], [fits for _, fits in read])


def _infinity(width: int) -> int:
    exponent_bits, digits = EXPONENT_BITS[width]
    return ((1 << exponent_bits) - 1) << (digits - 1)


def _may_be(code: Word, operands: _SumOperands) -> Truth:
    """What is known of the lanes' sum besides that it is the odd one.

    It is a multiple of the addends' unit, or infinite; zero where the exact sum is, and negative
    then if both addends are; and not finite beside what is not.
    """
    width = code.width
    body, infinity = code & ((1 << (width - 1)) - 1), _infinity(width)
    a, b = operands.addends
    zero = sum_of(a, b, _GRID.precision, code.theory.truth(False)).number.is_zero
    signed = code.is_negative.same(a.negative & b.negative)
    multiple = (body == infinity) | _is_multiple(code, min(a.unit, b.unit))
    finite = (body <= infinity) & zero.same(body == 0) & (~zero | signed) & multiple
    return choose(operands.are_finite, finite, body >= infinity)


def _is_multiple(code: Word, unit: int) -> Truth:
    """Whether a number of the lanes is a multiple of 2**unit."""
    width, digits = code.width, EXPONENT_BITS[code.width][1]
    bias = _infinity(width) >> digits
    hidden, exponent = hidden_digit(code.cut(width - 2, digits - 1))
    field, significand = exponent.extended(width), hidden.joined(code.cut(digits - 2, 0))
    significand = significand.extended(width)
    # The last digit of a field is worth 2**(field - bias - digits + 1).
    least = bias + digits - 1 + unit
    places = choose(field < least, code.theory.word(least, width) - field, field ^ field)
    return (code << 1 == 0) | (
        (places < digits) & ((significand >> places) << places == significand)
    )


# What the lanes give --------------------------------------------------------------------------


def _in_lanes(operation: str, cut: bool, x: Any, y: Any, z: Any = None) -> tuple[Any, Any]:
    """The formulas of a sum: its bits, and lanes that are not zero where it is cut."""
    a, b = (x * y, z) if operation == "fma" else (x, y)
    if cut:
        bits, lost = cut_sum(a, b)
        return bits, lost
    bits = sum_to_odd(a, b, _WIDTHS[operation])
    return bits, bits ^ bits


def _lanes_claim(operation: str, cut: bool) -> SolverClaim:
    """The formula of a sum gives the odd sum, or the cut one and what is lost."""
    theory, width = Theory(), _WIDTHS[operation]
    operands = _operands(theory, operation)
    pairs = list(zip(operands.codes, operands.numbers, strict=True))
    builder = TermBuilder(theory, Contracts(theory, pairs, _GRID))
    floats: list[Any] = [builder.floats(theory.real(code)) for code in operands.codes]
    if width == 64:
        floats = [widen(x) for x in floats]
    bits, lost = (builder.word(lanes) for lanes in _in_lanes(operation, cut, *floats))
    code = choose(lost != 0, bits | 1, bits)
    plain = (lost == 0) | (lost == 1)
    a, b = operands.addends
    digits = EXPONENT_BITS[width][1]
    total = sum_of(a, b, digits, a.negative & b.negative).number
    expected, _ = float_of(total, width, odd=True)
    is_odd = code == expected
    goal = plain & _may_be(code, operands) & (~operands.are_finite | is_odd)
    return SolverClaim(theory, goal, operands.premises)


@cache
def _lanes_kernel(operation: str, cut: bool) -> Any:
    @formula
    def lanes(x, y, z):  # type: ignore[no-untyped-def]
        return _in_lanes(operation, cut, x, y, z)

    @compiled
    def loop(x, y, z, sums, lost):  # type: ignore[no-untyped-def]
        like = load(sums, 0)
        bits, cut_off = lanes(
            load_float(x, 0, like), load_float(y, 0, like), load_float(z, 0, like)
        )
        store(sums, 0, bits)
        store(lost, 0, cut_off)

    return loop


def _lanes_check(operation: str, cut: bool, point: Point) -> Finding:
    """The compiled formula and the oracle's sum to odd; what is cut off counts as an odd digit."""
    width = _WIDTHS[operation]
    codes = [point[name] for name in ("xyz" if operation == "fma" else "xy")]
    arrays = [np.full(16, code, np.uint32).view(np.float32) for code in (*codes, 0)[:3]]
    sums, lost = (np.zeros(512 // width, f"u{width // 8}") for _ in "sl")
    _lanes_kernel(operation, cut)(*arrays, sums, lost)
    bits = int(sums[0]) | int(lost[0])
    if any(code & 0x7F800000 == 0x7F800000 for code in codes):
        finite = bits & _infinity(width) != _infinity(width)
        return Finding(f"{bits:#x}" if finite else "not finite", "not finite")
    lane_format = BINARY64 if width == 64 else BINARY32
    to_odd = OracleSettings(rounding=RTO)
    wide = tuple(convert(code, BINARY32, lane_format, to_odd)[0] for code in codes)
    expected, flags = operate(operation, wide, lane_format, to_odd)
    if int(flags) & _OVERFLOW:  # a sum beyond the lanes is infinite
        expected = expected >> width - 1 << width - 1 | _infinity(width)
    return Finding(f"{bits:#x}", f"{expected:#x}")


# What the step makes of it --------------------------------------------------------------------


def _exact(code: Word, settings: Settings, operands: _SumOperands) -> ExactNumber:
    """The lanes' sum as the exact one: its sign where it is zero is that of the mode."""
    theory, width = code.theory, code.width
    a, b = operands.addends
    body = code & ((1 << (width - 1)) - 1)
    of_both = theory.truth(settings.rounding.name == "RTN")
    sign = choose(a.negative.same(b.negative), a.negative, of_both)
    negative = choose(body == 0, sign, code.is_negative)
    infinite = body == _infinity(width)
    if width == 32:
        magnitude = magnitude_of(code)
    else:
        digits = theory.word(1, 1).joined(code.cut(51, 0))
        field = code.cut(62, 52).extended(12)
        digits = choose(body == 0, digits ^ digits, digits)
        number = ScaledNumber(negative, digits, field, -1075)
        magnitude = placed(number, _QUANTUM - RANDOM_DIGITS, 130)
    beyond = magnitude.of(1, 128)
    units = choose(infinite, beyond, magnitude.units)
    return ExactNumber(negative, Magnitude(units, magnitude.unit))


def _step_claim(operation: str, settings: Settings) -> SolverClaim:
    theory, width = Theory(), _WIDTHS[operation]
    operands = _operands(theory, operation)
    word = theory.variable("word", 32) if settings.rounding.stochastic else None
    code = theory.unnamed(width)
    lost = theory.unnamed(1)
    # Of a cut sum: its last digit may be even, and something lost.
    odd = code
    if word is not None and width == 32:
        odd = choose(lost == 1, code | 1, code)
    pairs = list(zip(operands.codes, operands.numbers, strict=True))
    builder = TermBuilder(theory, Contracts(theory, pairs, _GRID))
    step = replayed(builder, operation, settings, operands.codes, word, formulas={
        "sum_to_odd": lambda *_: builder.bits(code),
        "cut_sum": lambda *_: (builder.bits(code), builder.bits(lost.extended(width))),
    })
    exact = _exact(odd, settings, operands)
    outcome = expected_of(operation, operands.numbers, settings, word, total=exact, wide=True)
    goal = agrees(step.code, step.flags, outcome)
    return SolverClaim(theory, goal, [*operands.premises, _may_be(odd, operands)])


# Theorems -------------------------------------------------------------------------------------


def theorems() -> Iterator[Theorem]:
    """Sums in the lanes, then the operations."""
    granted = {"add": (IEEE, TWO_SUM), "fma": (PRODUCT, IEEE, TWO_SUM)}
    for operation, cut in (("add", False), ("add", True), ("fma", False)):
        how = "cut" if cut else "to odd"
        yield Theorem(
            f"sum {how} {operation} bfloat16", "sums in lanes",
            "the exact sum, cut to the digits of the lanes, and whether something is lost",
            partial(_lanes_claim, operation, cut), partial(_lanes_check, operation, cut),
            granted[operation],
            quick=operation == "add" and not cut,
            about="the formulas of sums give the exact sum cut, with an odd last digit where it is "
            "not whole",
        )
    for operation in granted:
        for rounding in (RNE, RTN, SR(8)):
            settings = Settings(BFLOAT16, rounding)
            mode = repr(settings.rounding).replace("bits=", "")
            yield Theorem(
                f"{operation} bfloat16 {mode}", "operation, under contracts",
                f"{operation} of all bfloat16 numbers is rounded once, with its flags",
                partial(_step_claim, operation, settings), partial(check, operation, settings),
                (_SUM, _ODD, PRODUCT) if operation == "fma" else (_SUM, _ODD),
                about="+, −, ×, ÷, √ and fma of all numbers of the format, with flags",
            )
