"""Contracts without contracts: published theorems, proved for numbers of few digits.

The kernels' own formula rounds a sum to odd, and the solver's own floats multiply and add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from fpsim.judge.proofs.exact import decoded, held, product, signed_sum
from fpsim.judge.proofs.replay import TermBuilder
from fpsim.judge.proofs.specification import ValueGrid
from fpsim.judge.proofs.terms import Theory, Word, choose
from fpsim.judge.proofs.theorem import SolverClaim, Theorem
from fpsim.kernels.rounding.to_odd import sum_to_odd

__all__ = ["theorems"]


def _grid(digits: int) -> ValueGrid:
    """Numbers of so many digits with the exponents of binary16."""
    return ValueGrid(digits, -14, (1 << digits) - 1, 16 - digits)


def _to_odd(units: Word, digits: int) -> Word:
    """Cut to so many digits; where something is lost the last digit becomes odd."""
    ulp = units.highest >> (digits - 1)
    ulp = choose(ulp == 0, units.theory.word(1, units.width), ulp)
    rest = units & (ulp - 1)
    return choose(rest == 0, units, (units - rest) | ulp)


def _sum_to_odd(digits: int) -> SolverClaim:
    theory = Theory()
    codes = [theory.variable(name, 32) for name in "xy"]
    (x, fits_x), (y, fits_y) = (held(code, _grid(digits), True) for code in codes)
    builder = TermBuilder(theory)
    lanes = [builder.floats(theory.real(code)) for code in codes]
    code = builder.word(sum_to_odd(*lanes, 32))
    total, is_zero = signed_sum(x.number, y.number)
    units, fits = decoded(code, total.magnitude.unit, total.magnitude.units.width)
    right = fits & (units == _to_odd(total.magnitude.units, 24))
    goal = right & (is_zero | code.is_negative.same(total.negative))
    return SolverClaim(theory, goal, [fits_x, fits_y, x.is_finite, y.is_finite])


def _product(digits: int) -> SolverClaim:
    theory = Theory()
    codes = [theory.variable(name, 32) for name in "xy"]
    (x, fits_x), (y, fits_y) = (held(code, _grid(digits), True) for code in codes)
    code = theory.real(codes[0]).times(theory.real(codes[1])).bits
    exact, _ = product(x, y)
    units, fits = decoded(code, exact.magnitude.unit, exact.magnitude.units.width)
    goal = fits & (units == exact.magnitude.units) & code.is_negative.same(exact.negative)
    return SolverClaim(theory, goal, [fits_x, fits_y, x.is_finite, y.is_finite])


def theorems() -> Iterator[Theorem]:
    """TwoSum and the rounding to odd, and exact products, of 4 and 5 digits."""
    families: tuple[tuple[str, Callable[[int], SolverClaim], str], ...] = (
        ("sum to odd", _sum_to_odd, "TwoSum's error is exact, and the sum is rounded to odd"),
        ("exact product", _product, "the processor's product has every digit"),
    )
    for name, claim, statement in families:
        for digits in (4, 5):
            yield Theorem(
                f"{name} {digits} digits", "contract, instances", f"{statement} ({digits} digits)",
                partial(claim, digits),
                about="TwoSum and exact products, without contracts, for numbers of few digits",
            )
