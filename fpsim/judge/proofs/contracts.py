"""What is taken for granted of the processor's arithmetic, where a theorem is too large without.

Three contracts. A sum or difference is the exact one rounded to nearest even (IEEE 754's operation,
an axiom). A product of numbers with so few digits that twice as many fit is exact. And of the six
operations of TwoSum, recognised as the formula emits them, the last gives x + y - s exactly;
another formula is no TwoSum and has no contract. `fpsim.judge.proofs.instances` proves product and
TwoSum without contracts for numbers of few digits; every proof under a contract asks the solver
for a model of its premises, so that none is vacuous.

Source    IEEE 754-2019 §5.4.1; Knuth, The Art of Computer Programming 2, §4.2.2, theorem B
          (TwoSum); Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., §4.3.
"""

from __future__ import annotations

from typing import Any

from fpsim.judge.proofs.exact import HeldNumber
from fpsim.judge.proofs.scaled import ScaledNumber, float_of, product_of, scaled, sum_of
from fpsim.judge.proofs.specification import ValueGrid
from fpsim.judge.proofs.terms import EXPONENT_BITS, Real, Theory, Truth, Word, choose

__all__ = ["IEEE", "PRODUCT", "TWO_SUM", "Contracts"]

IEEE, PRODUCT, TWO_SUM = "IEEE sum", "exact product", "TwoSum"


class Contracts:
    """Operations of floats for a `TermBuilder`: by contract where one fits, else the solver's own.

    operands   the numbers that the first floats hold, by the words of their bits.
    """

    def __init__(self, theory: Theory, operands: list[tuple[Word, HeldNumber]], grid: ValueGrid):
        self.theory, self.operands, self.grid = theory, operands, grid
        self._numbers: dict[int, ScaledNumber] = {}
        self._origins: dict[int, tuple[str, Real, Real]] = {}
        #: What a sum has lost, by its identity: bits of a float.
        self._lost: dict[int, Word] = {}
        #: Every float that has an entry: its identity stays its own.
        self._alive: list[Any] = []

    def get(self, name: str, usual: Any) -> Any:
        """What the builder does for an instruction."""
        rules = {
            "fadd": self.sum, "fsub": self.difference, "fmul": self.product, "fpext": self.widened,
        }
        return rules.get(name, usual)

    def _keep(self, real: Real, number: ScaledNumber) -> Real:
        self._numbers[id(real)] = number
        self._alive.append(real)
        return real

    def _number(self, real: Real) -> ScaledNumber | None:
        """The exact number behind a float: an operand's by its bits, with either sign."""
        if id(real) in self._numbers or not real.has_bits or real.width != 32:
            return self._numbers.get(id(real))
        for code, held in self.operands:
            number = scaled(held)
            if code.term == real.bits.term:
                self._keep(real, number)
            elif (code ^ 1 << 31).term == real.bits.term:
                self._keep(real, number._replace(negative=~number.negative))
        return self._numbers.get(id(real))

    def _record(self, name: str, result: Real, x: Real, y: Real) -> Real:
        self._origins[id(result)] = name, x, y
        self._alive.append((result, x, y))
        return result

    def widened(self, real: Real, width: int) -> Real:
        """The same number in wider lanes: exact, digit by digit."""
        number = self._number(real)
        if number is None or width != 64:
            return real.converted(width)
        code = real.bits
        quiet = choose(real.is_nan, code.cut(22, 0) | 1 << 22, code.cut(22, 0))
        special = code.cut(31, 31).joined(self.theory.word(2047, 11)).joined(quiet)
        special = special.joined(self.theory.word(0, 29))
        bits = choose(_finite(real), float_of(number, width)[0], special)
        return self._keep(self.theory.real(bits), number)

    def difference(self, x: Real, y: Real) -> Real:
        """Recorded, for TwoSum; no contract of its own."""
        return self._record("fsub", x.minus(y), x, y)

    def sum(self, x: Real, y: Real) -> Real:
        """By TwoSum's contract, by IEEE's, or as the solver has it."""
        error = self._error(x, y)
        if error is not None:
            return error
        a, b = self._number(x), self._number(y)
        if a is None or b is None:
            return self._record("fadd", x.plus(y), x, y)
        total = sum_of(a, b, EXPONENT_BITS[x.width][1], a.negative & b.negative)
        code, rest = float_of(total.number, x.width)
        result = self.theory.real(self.theory.unnamed(x.width))
        self.theory.definitions.append(choose(
            _finite(x) & _finite(y), result.bits == code, self._special_sum(x, y, result)
        ))
        smaller = choose(total.first_is_larger, y.bits, x.bits)
        self._lost[id(result)] = choose(total.apart, smaller, float_of(rest, x.width)[0])
        return self._record("fadd", result, x, y)

    def _special_sum(self, x: Real, y: Real, result: Real) -> Truth:
        infinite_x, infinite_y = _infinite(x), _infinite(y)
        opposed = infinite_x & infinite_y & (x.bits.is_negative ^ y.bits.is_negative)
        nan = x.is_nan | y.is_nan | opposed
        infinity = choose(infinite_x, x.bits, y.bits)
        return choose(nan, result.is_nan, result.bits == infinity)

    def _error(self, e: Real, f: Real) -> Real | None:
        """What TwoSum's last addition gives, where these are its operands."""
        nothing = ("", e, f)
        one, x, t = self._origins.get(id(e), nothing)
        two, y, part = self._origins.get(id(f), nothing)
        three, s, again = self._origins.get(id(t), nothing)
        four, s_again, x_again = self._origins.get(id(part), nothing)
        five, x_first, y_first = self._origins.get(id(s), nothing)
        is_two_sum = (
            (one, two, three, four, five) == ("fsub", "fsub", "fsub", "fsub", "fadd")
            and again is part and s_again is s
            and x_again is x and x_first is x and y_first is y
        )
        lost = self._lost.get(id(s))
        if not is_two_sum or lost is None:
            return None
        error = self.theory.real(self.theory.unnamed(s.width))
        # The sign of a zero is not looked at.
        number = (error.bits == lost) | ((error.bits << 1 == 0) & (lost << 1 == 0))
        # Beside an infinite sum every difference is one, or NaN.
        self.theory.definitions.append(choose(_finite(s), number, error.is_nan))
        return error

    def product(self, x: Real, y: Real) -> Real:
        """Exact, of numbers of the format; their digits fit twice."""
        a, b = self._number(x), self._number(y)
        if a is None or b is None or 2 * self.grid.precision > EXPONENT_BITS[x.width][1]:
            return x.times(y)
        exact = product_of(a, b)
        code, _ = float_of(exact, x.width)
        result = self.theory.real(self.theory.unnamed(x.width))
        none = (_infinite(x) & b.is_zero) | (a.is_zero & _infinite(y))
        infinity = self.theory.word(0x7F800000 if x.width == 32 else 0x7FF0 << 48, x.width)
        body = result.bits & ((1 << (x.width - 1)) - 1)
        signed = result.bits.is_negative.same(exact.negative)
        special = choose(
            x.is_nan | y.is_nan | none, result.is_nan, (body == infinity) & signed
        )
        number = choose(_finite(x) & _finite(y), result.bits == code, special)
        self.theory.definitions.append(number)
        return self._keep(result, exact)


def _field(x: Real) -> Word:
    return x.bits.cut(x.width - 2, EXPONENT_BITS[x.width][1] - 1)


def _finite(x: Real) -> Truth:
    return _field(x) != (1 << EXPONENT_BITS[x.width][0]) - 1


def _infinite(x: Real) -> Truth:
    return ~_finite(x) & ~x.is_nan
