"""Contracts without contracts: the published theorems, proved in floats of few digits.

They hold for every number of digits; each digit more takes the solver several times as long. TwoSum
fails where an operand is the largest number of the type (an operation in between overflows); the
kernels' operands have fewer digits than their lanes, and are none.

Source    Boldo, Graillat, Muller, "On the robustness of the 2Sum and Fast2Sum algorithms", ACM
          TOMS 44 (2017).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType
from typing import Any

from fpsim.judge.proofs.exact import ExactNumber, decoded, signed_sum
from fpsim.judge.proofs.specification import Magnitude
from fpsim.judge.proofs.terms import EXPONENT_BITS, Theory, Word, both
from fpsim.judge.proofs.theorem import SolverClaim, Theorem
from fpsim.kernels.elementwise.cut import cut_sum
from fpsim.kernels.rounding.to_odd import sum_to_odd

__all__ = ["theorems"]

#: Unit of the smallest subnormal of floats with five exponent bits, for so many digits.
_BIAS, _EMIN = 15, -14


def _number(code: Word) -> ExactNumber:
    digits = EXPONENT_BITS[code.width][1]
    unit = _EMIN - digits + 1
    units, _ = decoded(code, unit, 31 + digits)
    return ExactNumber(code.is_negative, Magnitude(units, unit))


def _finite(code: Word) -> Word:
    digits = EXPONENT_BITS[code.width][1]
    return code.cut(code.width - 2, digits - 1)


def two_sum(formula: Any, x: Any, y: Any) -> list[Any]:
    """The sum, and what it has lost by the text of a formula of the kernels, of any floats."""
    read_as_bits: list[Any] = []

    def as_bits(value: Any) -> int:
        read_as_bits.append(value)
        return 0

    names = {"as_bits": as_bits, "_cut": lambda *_: 0, "_to_odd": lambda *_: 0}
    operands = x, y, 0  # the last one is the width of the lanes, for which nothing is done here
    text = formula._defn.__wrapped__.__code__
    FunctionType(text, names)(*operands[: text.co_argcount])
    return read_as_bits


def _two_sum(digits: int) -> SolverClaim:
    theory = Theory()
    codes = [theory.variable(name, 5 + digits) for name in "xy"]
    s, error = two_sum(cut_sum, *(theory.real(code) for code in codes))
    again, error_again = two_sum(sum_to_odd, *(theory.real(code) for code in codes))
    x, y, total, lost = (_number(code) for code in (*codes, s.bits, error.bits))
    left, _ = signed_sum(x, y)
    right, _ = signed_sum(total, lost)
    goal = (left.magnitude.units == right.magnitude.units) & (
        (left.magnitude.units == 0) | left.negative.same(right.negative)
    ) & s.same(again) & error.same(error_again)
    finite = [_finite(code) != 31 for code in (*codes, s.bits)]
    # Of the largest number of the type an operation in between may overflow.
    largest = (31 << (digits - 1)) - 1
    smaller = [(code & ((16 << digits) - 1)) != largest for code in codes]
    cases = [_finite(codes[0]) == field for field in range(31)]
    return SolverClaim(theory, goal, finite + smaller, cases=cases)


def _product(digits: int) -> SolverClaim:
    """Numbers of so many digits in floats of twice as many; no overflow and no underflow."""
    theory = Theory()
    codes = [theory.variable(name, 5 + 2 * digits) for name in "xy"]
    premises = [code.cut(digits - 1, 0) == 0 for code in codes]
    fields = [_finite(code) for code in codes]
    premises += [(field > 7) & (field < 23) for field in fields]
    code = theory.real(codes[0]).times(theory.real(codes[1])).bits
    x, y = (theory.word(1, 1).joined(c.cut(2 * digits - 2, digits)) for c in codes)
    exact = x.extended(2 * digits) * y.extended(2 * digits)
    # Units of 2**(field - bias) at both ends: the leading digit stands first or second.
    result = theory.word(1, 1).joined(code.cut(2 * digits - 2, 0))
    field = fields[0].extended(8) + fields[1].extended(8) - _BIAS
    got = _finite(code).extended(8)
    first = (got == field + 1) & (result == exact)
    second = (got == field) & (result == exact << 1) & ~exact.is_negative
    return SolverClaim(theory, both([first | second]), premises)


def theorems() -> Iterator[Theorem]:
    """TwoSum and exact products of few digits."""
    families: tuple[tuple[str, Callable[[int], SolverClaim], tuple[int, ...], str], ...] = (
        ("TwoSum", _two_sum, (4, 5, 6), "s + error = x + y, s finite and no operand the largest"),
        ("exact product", _product, (4, 5, 6), "the product has every digit"),
    )
    for name, claim, sizes, statement in families:
        for digits in sizes:
            yield Theorem(
                f"{name} {digits} digits", "contract, instances", f"{statement} ({digits} digits)",
                partial(claim, digits), quick=(name, digits) == ("exact product", 4),
                about="TwoSum and exact products, without contracts, in floats of few digits",
            )
