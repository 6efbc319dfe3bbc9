"""Numbers as digits times a power of two: their sums and floats are exact fractions (differential);
branches of functions of arrays (law).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("bitwuzla")

from fpsim.judge.proofs.numpy_terms import ArrayElement, ways_of
from fpsim.judge.proofs.scaled import ScaledNumber, float_of, placed, product_of, sum_of
from fpsim.judge.proofs.terms import Theory
from fpsim.judge.proofs.theorem import SolverClaim, Theorem, prove
from tests.tiers import pick

#: The unit of an 8-digit number in binary32: its smallest subnormal.
UNIT = -133


def number(theory, rng):
    """A number of bfloat16, subnormal ones and zeros too, and its value."""
    exponent = int(rng.choice([0, 1, rng.integers(254), 253]))
    digits = int(rng.integers(256))
    digits = digits if exponent == 0 else digits | 128
    negative = bool(rng.integers(2))
    value = Fraction(digits) * Fraction(2) ** (exponent + UNIT) * (-1 if negative else 1)
    exponent = exponent if digits else 0
    return ScaledNumber(
        theory.truth(negative), theory.word(digits, 8), theory.word(exponent, 12), UNIT
    ), value


def value_of(x):
    size = Fraction(x.digits.value) * Fraction(2) ** (x.exponent.value + x.unit)
    return -size if x.negative else size


def test_sums_and_floats_are_exact_fractions():
    rng, theory = np.random.default_rng(3), Theory()
    for _ in range(pick(300, 5_000, 50_000)):
        (x, a), (y, b) = number(theory, rng), number(theory, rng)
        total = sum_of(x, y, 24, theory.truth(False))
        code, rest = float_of(total.number, 32)
        with np.errstate(over="ignore"):
            expected = np.float32(float(a)) + np.float32(float(b))
        assert code.value == int(expected.view(np.uint32)) or a + b == 0, (a, b)
        if not total.apart:
            assert value_of(total.number) == a + b
            if np.isfinite(expected):
                assert value_of(rest) == a + b - Fraction(float(expected))
        product, _ = float_of(product_of(x, y), 64)
        assert product.value << 1 == int(np.float64(float(a) * float(b)).view(np.uint64)) << 1
        magnitude = placed(total.number, -160, 130)
        held = Fraction(magnitude.units.value) * Fraction(2) ** -160
        assert held == abs(value_of(total.number)) or magnitude.units.value % 2 == 1


def test_floats_are_cut():
    theory = Theory()
    x = ScaledNumber(theory.truth(True), theory.word(0x1FFFFFF, 32), theory.word(0, 12), 0)
    assert float_of(x, 32)[0].value == 0xCC000000
    assert float_of(x, 32, cut=True)[0].value == 0xCBFFFFFF


def test_every_way_through_branches_is_run():
    theory = Theory()
    x = ArrayElement(theory.variable("x", 32))

    def call():
        if x == 3:
            return 1
        return 2 if x < 2 and x != 0 else 3

    ways = list(ways_of(call, theory))
    assert sorted(result for _, result in ways) == [1, 2, 3, 3]
    covered = ways[0][0]
    for condition, _ in ways[1:]:
        covered = covered | condition
    assert prove(Theorem("ways", "test", "all", lambda: SolverClaim(theory, covered))).is_proved
    with pytest.raises(TypeError, match="a branch on an element"):
        bool(x == 3)


def test_granted_products_are_those_of_ieee_beside_special_numbers():
    theory = Theory(granted=True)
    x = theory.real(theory.variable("x", 32))
    one = theory.real(theory.word(0x3F800000, 32))
    goal = one.times(x).same(x) & x.divided(one).same(x)
    assert prove(Theorem("one", "test", "all", lambda: SolverClaim(theory, goal))).is_proved
    wrong = Theory(granted=True)
    y = wrong.real(wrong.variable("y", 32))
    other = y.times(y).same(y.divided(y))
    assert not prove(Theorem("two", "test", "all", lambda: SolverClaim(wrong, other))).is_proved
