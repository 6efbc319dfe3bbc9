"""Operations inside a format: + - * / sqrt fma of all its numbers, with flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from fpsim.judge.oracle import operate
from fpsim.judge.oracle.rounding import encode
from fpsim.judge.proofs.compiled import answers, bits_of, told
from fpsim.judge.proofs.contracts import IEEE, PRODUCT, TWO_SUM, Contracts
from fpsim.judge.proofs.conversions import oracle_settings
from fpsim.judge.proofs.elementwise import replayed
from fpsim.judge.proofs.exact import (
    ExactNumber,
    HeldNumber,
    held,
    product,
    quotient,
    root,
    signed_sum,
)
from fpsim.judge.proofs.outcomes import ExpectedResult, agrees, not_a_number, result_of
from fpsim.judge.proofs.replay import TermBuilder
from fpsim.judge.proofs.scaled import ScaledNumber, placed, product_of, scaled, sum_of
from fpsim.judge.proofs.specification import Magnitude, ValueGrid, grid_of
from fpsim.judge.proofs.terms import Theory, Truth, Word, choose
from fpsim.judge.proofs.theorem import Finding, Point, SolverClaim, Theorem
from fpsim.records.formats import BFLOAT16, BINARY16, E5M2, Format
from fpsim.records.rounding import SR
from fpsim.records.settings import Settings

__all__ = ["RANDOM_DIGITS", "check", "expected_of", "theorems"]

_NAMES = {"sqrt": ("x",), "fma": ("x", "y", "z")}
_DIVBYZERO = 8

#: Places below the quantum that random digits look at, and some.
RANDOM_DIGITS = 20


def _infinite(like: ExpectedResult, negative: Truth, flags: int = 0) -> ExpectedResult:
    theory = like.flags.theory
    yes, no = theory.truth(True), theory.truth(False)
    return like._replace(infinite=yes, nan=no, negative=negative, flags=theory.word(flags, 8))


def _sum_of(
    x: ExactNumber | ScaledNumber, y: ExactNumber | ScaledNumber, settings: Settings,
    word: Word | None,
) -> ExpectedResult:
    """The rounded sum; an exact zero of both signs is +0, and -0 toward -infinity."""
    of_both = x.negative.theory.truth(settings.rounding.name == "RTN")
    sign = choose(x.negative.same(y.negative), x.negative, of_both)
    if isinstance(x, ScaledNumber) and isinstance(y, ScaledNumber):
        # More digits than a rounding looks at: those of the lanes, whose terms are the same then.
        digits = 53 if x.digits.width > settings.format.precision else 24
        sums = sum_of(x, y, digits, sign).number
        return result_of(_in_range(sums, settings), sums.negative, settings, word)
    assert isinstance(x, ExactNumber)
    assert isinstance(y, ExactNumber)
    total, is_zero = signed_sum(x, y)
    negative = choose(is_zero, sign, total.negative)
    return result_of(total.magnitude, negative, settings, word)


def _rounded(total: ExactNumber, settings: Settings, word: Word | None) -> ExpectedResult:
    return result_of(total.magnitude, total.negative, settings, word)


def _in_range(x: ScaledNumber, settings: Settings) -> Magnitude:
    """Digits that a rounding looks at, and numbers that are too large as one of them."""
    grid = grid_of(settings.format)
    quantum = grid.emin - grid.precision + 1
    return placed(x, quantum - RANDOM_DIGITS, grid.last_exponent + grid.precision + 1)


def _sum(
    x: HeldNumber, y: HeldNumber, settings: Settings, word: Word | None, wide: bool,
    total: ExactNumber | None = None,
) -> tuple[ExpectedResult, Truth]:
    """The sum of two numbers or infinities, and where there is none."""
    a, b = (scaled(x), scaled(y)) if wide else (x.number, y.number)
    finite = _rounded(total, settings, word) if total else _sum_of(a, b, settings, word)
    where = x.is_infinite | y.is_infinite
    negative = choose(x.is_infinite, x.negative, y.negative)
    none = x.is_infinite & y.is_infinite & (x.negative ^ y.negative)
    return _infinite(finite, negative).where(where, finite), none


def _product(
    x: HeldNumber, y: HeldNumber, settings: Settings, word: Word | None, wide: bool
) -> tuple[ExpectedResult, Truth]:
    exact = product_of(scaled(x), scaled(y)) if wide else product(x, y)[0]
    magnitude = _in_range(exact, settings) if isinstance(exact, ScaledNumber) else exact.magnitude
    finite = result_of(magnitude, exact.negative, settings, word)
    where = x.is_infinite | y.is_infinite
    none = (x.is_infinite & y.is_zero) | (x.is_zero & y.is_infinite)
    return _infinite(finite, exact.negative).where(where, finite), none


def _quotient(
    x: HeldNumber, y: HeldNumber, settings: Settings, word: Word | None, _wide: bool
) -> tuple[ExpectedResult, Truth]:
    exact = quotient(x, y)
    units = exact.magnitude.units
    zero = exact.magnitude._replace(units=units ^ units)
    finite = result_of(exact.magnitude, exact.negative, settings, word)
    nothing = result_of(zero, exact.negative, settings, word)
    result = nothing.where(x.is_zero | y.is_infinite, finite)
    result = _infinite(finite, exact.negative, _DIVBYZERO).where(y.is_zero, result)
    result = _infinite(finite, exact.negative).where(x.is_infinite, result)
    return result, (x.is_zero & y.is_zero) | (x.is_infinite & y.is_infinite)


def _root(
    x: HeldNumber, settings: Settings, word: Word | None, _wide: bool
) -> tuple[ExpectedResult, Truth]:
    exact = root(x)
    units = exact.magnitude.units
    zero = exact.magnitude._replace(units=units ^ units)
    finite = result_of(exact.magnitude, x.negative, settings, word)
    result = result_of(zero, x.negative, settings, word).where(x.is_zero, finite)
    result = _infinite(finite, x.negative).where(x.is_infinite, result)
    return result, x.negative & ~x.is_zero & ~x.is_nan


def _fused(
    x: HeldNumber, y: HeldNumber, z: HeldNumber, settings: Settings, word: Word | None,
    wide: bool, total: ExactNumber | None = None,
) -> tuple[ExpectedResult, Truth]:
    exact = product_of(scaled(x), scaled(y)) if wide else product(x, y)[0]
    z_number = scaled(z) if wide else z.number
    finite = _rounded(total, settings, word) if total else _sum_of(exact, z_number, settings, word)
    infinite = x.is_infinite | y.is_infinite
    negative = choose(infinite, exact.negative, z.negative)
    none = (x.is_infinite & y.is_zero) | (x.is_zero & y.is_infinite)
    opposed = infinite & z.is_infinite & (exact.negative ^ z.negative)
    return _infinite(finite, negative).where(infinite | z.is_infinite, finite), none | opposed


def expected_of(
    operation: str, operands: Sequence[HeldNumber], settings: Settings, word: Word | None,
    wide: bool = False, total: ExactNumber | None = None,
) -> ExpectedResult:
    """What an operation of numbers of the format gives by the rules.

    `wide`: the range stays in exponents, instead of a magnitude as long as the range. `total`: the
    sum of finite operands, where it is known.
    """
    rules: dict[str, Callable[..., tuple[ExpectedResult, Truth]]] = {
        "add": _sum, "subtract": _sum, "multiply": _product, "divide": _quotient, "sqrt": _root,
        "fma": _fused,
    }
    more = {"total": total} if total else {}
    result, none = rules[operation](*operands, settings, word, wide, **more)
    nan, loud = operands[0].is_nan, operands[0].is_signalling
    for operand in operands[1:]:
        nan, loud = nan | operand.is_nan, loud | operand.is_signalling
    invalid = loud | (none & ~nan)
    if operation == "fma":  # inf * 0 is invalid beside a quiet NaN too
        x, y, _ = operands
        invalid = invalid | (x.is_infinite & y.is_zero) | (x.is_zero & y.is_infinite)
    no_number = not_a_number(result.magnitude, invalid, settings)
    return no_number.where(nan | invalid, result)


def _flushed(x: HeldNumber, grid: ValueGrid) -> HeldNumber:
    """The operand as `flush_both` reads it: a subnormal number is a zero of its sign."""
    magnitude, digits = x.number.magnitude, x.significand
    units = magnitude.units
    small = x.is_finite & (units < 1 << (grid.precision - 1))
    zero = magnitude._replace(units=choose(small, units ^ units, units))
    return x._replace(
        number=x.number._replace(magnitude=zero),
        significand=choose(small, digits ^ digits, digits), is_zero=x.is_zero | small,
    )


def _claim(operation: str, settings: Settings, contracts: bool) -> SolverClaim:
    theory = Theory()
    names = _NAMES.get(operation, ("x", "y"))
    codes = [theory.variable(name, 32) for name in names]
    word = theory.variable("word", 32) if settings.rounding.stochastic else None
    grid = grid_of(settings.format)
    quiet = not settings.format.has_signalling_nan
    read = [held(code, grid, quiet) for code in codes]
    numbers, premises = [number for number, _ in read], [fits for _, fits in read]
    held_operands = list(zip(codes, numbers, strict=True))
    granted = Contracts(theory, held_operands, grid) if contracts else None
    builder = TermBuilder(theory, granted)
    step = replayed(builder, operation, settings, codes, word)
    if settings.subnormals == "flush_both":
        numbers = [_flushed(number, grid) for number in numbers]
    if operation == "subtract":
        x, y = numbers
        numbers = [x, y._replace(number=y.number._replace(negative=~y.negative))]
    goal = agrees(step.code, step.flags, expected_of(
        operation, numbers, settings, word, contracts
    ))
    return SolverClaim(theory, goal, premises)


def _code_of(x: int, fmt: Format) -> int:
    """The code of a value of the format from its binary32 bits."""
    value = float(np.uint32(x).view(np.float32))
    sign = x >> 31
    if value != value:
        quiet = x >> 22 & 1
        body = ((1 << fmt.exponent_bits) - 1) << (fmt.precision - 1)
        payload = (x & 0x7FFFFF) >> (24 - fmt.precision)
        return sign << (fmt.bits - 1) | body | (payload or (1 if not quiet else 0))
    if value in (float("inf"), float("-inf")):
        return sign << (fmt.bits - 1) | ((1 << fmt.exponent_bits) - 1) << (fmt.precision - 1)
    return encode(sign, abs(Fraction(value)), fmt)


def check(operation: str, settings: Settings, point: Point) -> Finding:
    """The compiled kernel and the oracle at a point."""
    operands = [point[name] for name in _NAMES.get(operation, ("x", "y"))]
    word, fmt = point.get("word", 0), settings.format
    codes = tuple(_code_of(x, fmt) for x in operands)
    code, flags = operate(operation, codes, fmt, oracle_settings(settings, word))
    outcomes = answers(operation, settings, operands, word)
    return Finding(told(outcomes), told({(bits_of(code, fmt), int(flags))}))


_OPERATIONS = ("add", "subtract", "multiply", "divide", "sqrt", "fma")


def _operation(
    operation: str, fmt: Format, rounding: Any, contracts: tuple[str, ...] = (),
    subnormals: str | None = None,
) -> Theorem:
    settings = Settings(fmt, rounding, subnormals=subnormals or "keep")
    mode = repr(settings.rounding).replace("bits=", "")
    name = f"{operation} {fmt.name} {mode}" + (f" subnormals={subnormals}" if subnormals else "")
    return Theorem(
        name, "operation, under contracts" if contracts else "operation",
        f"{operation} of all {fmt.name} numbers is rounded once, with its flags",
        partial(_claim, operation, settings, bool(contracts)),
        partial(check, operation, settings), contracts,
        quick=name in ("multiply e5m2 RNE", "add binary16 RNE"),
        about="+, −, ×, ÷, √ and fma of all numbers of the format, with flags",
    )


def theorems() -> Iterator[Theorem]:
    """E5M2 directly; binary16 and bfloat16 under contracts."""
    for operation in _OPERATIONS:
        for rounding in ("RNE", "RTN", "RTO", SR(8)):
            yield _operation(operation, E5M2, rounding)
    for operation, rounding in (("multiply", "RNE"), ("add", "RTN")):
        yield _operation(operation, E5M2, rounding, subnormals="flush_both")
    granted = {"add": (IEEE, TWO_SUM), "multiply": (PRODUCT,), "fma": (PRODUCT, IEEE, TWO_SUM)}
    for operation, contracts in granted.items():
        for rounding in ("RNE", "RTN", SR(8)):
            yield _operation(operation, BINARY16, rounding, contracts)
    for rounding in ("RNE", "RTN", SR(8)):
        yield _operation("multiply", BFLOAT16, rounding, granted["multiply"])
