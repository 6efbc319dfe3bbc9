"""Numbers of a fixed width that a solver knows, with Python's operators.

A `Word` is a bit-vector: a plain integer, or a term over variables. Operators between integers give
integers at once, so what is written for terms also computes: a specification is compared with
the oracle, and a replayed formula with the compiled kernel, on points. A `Truth` is a truth value
likewise. Shifts by the width or more give zero, as in SMT-LIB.

Source    SMT-LIB 2.6, theories FixedSizeBitVectors and FloatingPoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any, TypeVar

import bitwuzla as bz
from bitwuzla import Kind, RoundingMode

__all__ = ["EXPONENT_BITS", "Real", "Theory", "Truth", "Word", "both", "choose", "either"]

#: Exponent bits and digits of floats, by width: small ones, and the processor's.
EXPONENT_BITS = {
    9: (5, 4), 10: (5, 5), 11: (5, 6), 13: (5, 8), 15: (5, 10), 16: (5, 11), 17: (5, 12),
    32: (8, 24), 64: (11, 53),
}

_MODES = {
    "RNE": RoundingMode.RNE, "RNA": RoundingMode.RNA, "RTZ": RoundingMode.RTZ,
    "RTP": RoundingMode.RTP, "RTN": RoundingMode.RTN,
}


#: Operations that a theory may grant.
_GRANTED = (Kind.FP_MUL, Kind.FP_DIV)


class Theory:
    """Where the terms of one theorem are made: variables, and what defines them.

    `chances`: what may be either is so; None: either. `granted`: products and quotients of terms
    are any function of their operands.
    """

    def __init__(self, chances: bool | None = None, granted: bool = False) -> None:
        self.manager = bz.TermManager()
        self.variables: dict[str, Word] = {}
        #: What holds of variables that stand for results: bits of floats, values by contract.
        self.definitions: list[Truth] = []
        #: What must hold besides the theorem, by name: no count of a shift reaches the width.
        self.duties: list[tuple[str, Truth]] = []
        self._unnamed, self._chances, self.granted = 0, chances, granted
        self._functions: dict[tuple[Any, int], Any] = {}
        self._evaluator = bz.Bitwuzla(self.manager)

    def word(self, value: int, width: int) -> Word:
        """A number."""
        return Word(self, value & ((1 << width) - 1), width)

    def truth(self, value: bool) -> Truth:
        return Truth(self, value)

    def variable(self, name: str, width: int) -> Word:
        """A number that may be any."""
        term = self.manager.mk_const(self.manager.mk_bv_sort(width), name)
        self.variables[name] = Word(self, term, width)
        return self.variables[name]

    def unnamed(self, width: int) -> Word:
        """A number that only its definition knows."""
        self._unnamed += 1
        sort = self.manager.mk_bv_sort(width)
        return Word(self, self.manager.mk_const(sort, f"_{self._unnamed}"), width)

    def chance(self) -> Truth:
        """A truth value that may be either."""
        if self._chances is not None:
            return self.truth(self._chances)
        return self.unnamed(1) == 1

    def real(self, bits: Word) -> Real:
        """The float with these bits."""
        return Real(self, bits.width, bits=bits)

    def function(self, kind: Any, operands: list[Word]) -> Word:
        """What a granted operation gives: the same for the same operands."""
        width, manager = operands[0].width, self.manager
        if (kind, width) not in self._functions:
            sort = manager.mk_bv_sort(width)
            signature = manager.mk_fun_sort([sort] * len(operands), sort)
            self._functions[kind, width] = manager.mk_const(signature, f"_{kind.name}_{width}")
        named = self._functions[kind, width]
        term = manager.mk_term(Kind.APPLY, [named, *(operand.term for operand in operands)])
        result = Word(self, term, width)
        x, y = operands
        self.definitions.append(_special(kind, x, y, result))
        return result

    def evaluate(self, term: Any) -> Any:
        """A term without variables as a value."""
        return self._evaluator.simplify_term(term)


def _special(kind: Any, x: Word, y: Word, result: Word) -> Truth:
    """What IEEE 754 says of zeros, ones, infinities, NaN and signs of a product or quotient."""
    top = 1 << (x.width - 1)
    exponent_bits, digits = EXPONENT_BITS[x.width]
    infinity = ((1 << exponent_bits) - 1) << (digits - 1)
    (a, b), body = tuple(w & (top - 1) for w in (x, y)), result & (top - 1)
    infinite, zero = (a == infinity) | (b == infinity), (a == 0) | (b == 0)
    invalid = infinite & zero
    if kind == Kind.FP_DIV:
        invalid = ((a == 0) & (b == 0)) | ((a == infinity) & (b == infinity))
        infinite, zero = (a == infinity) | (b == 0), (a == 0) | (b == infinity)
    one = ((1 << (exponent_bits - 1)) - 1) << (digits - 1)
    number = choose(b == one, body == a, body <= infinity)
    if kind == Kind.FP_MUL:
        number = choose(a == one, body == b, number)
    value = choose(infinite, body == infinity, choose(zero, body == 0, number))
    signed = result.is_negative.same(x.is_negative ^ y.is_negative)
    return choose((a > infinity) | (b > infinity) | invalid, body > infinity, value & signed)


class Truth:
    """A truth value: plain, or a term."""

    __slots__ = ("theory", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, theory: Theory, value: Any) -> None:
        self.theory, self.value = theory, value

    def __bool__(self) -> bool:
        if not isinstance(self.value, bool):
            raise TypeError("the truth of a term is the solver's to say; use choose")
        return self.value

    @property
    def is_plain(self) -> bool:
        return isinstance(self.value, bool)

    @property
    def term(self) -> Any:
        """As the solver takes it."""
        manager = self.theory.manager
        if not self.is_plain:
            return self.value
        return manager.mk_true() if self.value else manager.mk_false()

    def _joined(self, kind: Any, other: Truth) -> Truth:
        return Truth(self.theory, self.theory.manager.mk_term(kind, [self.term, other.term]))

    def __and__(self, other: Truth) -> Truth:
        for one, rest in ((self, other), (other, self)):
            if one.is_plain:
                return rest if one.value else one
        return self._joined(Kind.AND, other)

    def __or__(self, other: Truth) -> Truth:
        for one, rest in ((self, other), (other, self)):
            if one.is_plain:
                return one if one.value else rest
        return self._joined(Kind.OR, other)

    def __xor__(self, other: Truth) -> Truth:
        for one, rest in ((self, other), (other, self)):
            if one.is_plain:
                return ~rest if one.value else rest
        return self._joined(Kind.XOR, other)

    def __invert__(self) -> Truth:
        if self.is_plain:
            return Truth(self.theory, not self.value)
        return Truth(self.theory, self.theory.manager.mk_term(Kind.NOT, [self.value]))

    def same(self, other: Truth) -> Truth:
        return ~(self ^ other)

    def implies(self, other: Truth) -> Truth:
        return ~self | other


def both(truths: Iterable[Truth]) -> Truth:
    """Whether all hold (at least one is given)."""
    return reduce(Truth.__and__, truths)


def either(truths: Iterable[Truth]) -> Truth:
    """Whether one holds at least (at least one is given)."""
    return reduce(Truth.__or__, truths)


class Word:
    """A bit-vector: a plain integer, or a term."""

    __slots__ = ("theory", "value", "width")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, theory: Theory, value: Any, width: int) -> None:
        self.theory, self.value, self.width = theory, value, width

    @property
    def is_plain(self) -> bool:
        return isinstance(self.value, int)

    @property
    def term(self) -> Any:
        """As the solver takes it."""
        manager = self.theory.manager
        if not self.is_plain:
            return self.value
        return manager.mk_bv_value(manager.mk_bv_sort(self.width), self.value)

    def _like(self, other: Word | int) -> Word:
        if isinstance(other, int):
            return self.theory.word(other, self.width)
        if other.width != self.width:
            raise TypeError(f"words of {self.width} and {other.width} bits do not mix")
        return other

    def _new_term(self, kind: Any, operands: list[Word], width: int, indices: list[int]) -> Word:
        manager = self.theory.manager
        term = manager.mk_term(kind, [w.term for w in operands], indices)
        return Word(self.theory, term, width)

    def _joined(self, kind: Any, other: Word | int, plain: Any) -> Word:
        other = self._like(other)
        if self.is_plain and other.is_plain:
            return self.theory.word(plain(self.value, other.value), self.width)
        return self._new_term(kind, [self, other], self.width, [])

    def __add__(self, other: Word | int) -> Word:
        return self._joined(Kind.BV_ADD, other, lambda a, b: a + b)

    def __sub__(self, other: Word | int) -> Word:
        return self._joined(Kind.BV_SUB, other, lambda a, b: a - b)

    def __mul__(self, other: Word | int) -> Word:
        return self._joined(Kind.BV_MUL, other, lambda a, b: a * b)

    def __floordiv__(self, other: Word | int) -> Word:
        """The unsigned quotient; of a divisor 0 all ones, as in SMT-LIB."""
        return self._joined(Kind.BV_UDIV, other, lambda a, b: a // b if b else -1)

    def __mod__(self, other: Word | int) -> Word:
        return self._joined(Kind.BV_UREM, other, lambda a, b: a % b if b else a)

    def __and__(self, other: Word | int) -> Word:
        return self._joined(Kind.BV_AND, other, lambda a, b: a & b)

    def __or__(self, other: Word | int) -> Word:
        return self._joined(Kind.BV_OR, other, lambda a, b: a | b)

    def __xor__(self, other: Word | int) -> Word:
        return self._joined(Kind.BV_XOR, other, lambda a, b: a ^ b)

    def __lshift__(self, other: Word | int) -> Word:
        width = self.width
        return self._joined(Kind.BV_SHL, other, lambda a, b: a << b if b < width else 0)

    def __rshift__(self, other: Word | int) -> Word:
        """Zeros come in from above."""
        return self._joined(Kind.BV_SHR, other, lambda a, b: a >> b)

    def __invert__(self) -> Word:
        if self.is_plain:
            return self.theory.word(~self.value, self.width)
        return self._new_term(Kind.BV_NOT, [self], self.width, [])

    def _compared(self, kind: Any, other: Word | int, plain: Any) -> Truth:
        other = self._like(other)
        if self.is_plain and other.is_plain:
            return Truth(self.theory, plain(self.value, other.value))
        return Truth(self.theory, self.theory.manager.mk_term(kind, [self.term, other.term]))

    def __eq__(self, other: object) -> Truth:  # type: ignore[override]
        if not isinstance(other, (Word, int)):
            return NotImplemented
        return self._compared(Kind.EQUAL, other, lambda a, b: a == b)

    def __ne__(self, other: object) -> Truth:  # type: ignore[override]
        return ~(self == other)

    def __lt__(self, other: Word | int) -> Truth:
        return self._compared(Kind.BV_ULT, other, lambda a, b: a < b)

    def __le__(self, other: Word | int) -> Truth:
        return self._compared(Kind.BV_ULE, other, lambda a, b: a <= b)

    def __gt__(self, other: Word | int) -> Truth:
        return self._compared(Kind.BV_UGT, other, lambda a, b: a > b)

    def __ge__(self, other: Word | int) -> Truth:
        return self._compared(Kind.BV_UGE, other, lambda a, b: a >= b)

    def signed_below(self, other: Word | int) -> Truth:
        """Whether it is less as a signed number."""
        top = 1 << (self.width - 1)
        return (self ^ top) < (self._like(other) ^ top)

    @property
    def is_negative(self) -> Truth:
        """The top bit."""
        return self.cut(self.width - 1, self.width - 1) == 1

    def cut(self, high: int, low: int) -> Word:
        """Bits high to low."""
        width = high - low + 1
        if self.is_plain:
            return self.theory.word(self.value >> low, width)
        return self._new_term(Kind.BV_EXTRACT, [self], width, [high, low])

    def joined(self, low: Word) -> Word:
        """These bits above those of `low`."""
        width = self.width + low.width
        if self.is_plain and low.is_plain:
            return self.theory.word(self.value << low.width | low.value, width)
        return self._new_term(Kind.BV_CONCAT, [self, low], width, [])

    def extended(self, width: int) -> Word:
        """With zeros above, or as it is."""
        if width == self.width:
            return self
        if self.is_plain:
            return self.theory.word(self.value, width)
        return self._new_term(Kind.BV_ZERO_EXTEND, [self], width, [width - self.width])

    def sign_extended(self, width: int) -> Word:
        """With copies of the top bit above."""
        top = 1 << (self.width - 1)
        return ((self ^ top).extended(width)) - top

    def to_real(self, width: int, signed: bool, mode: str = "RNE") -> Real:
        """The whole number as a float."""
        manager = self.theory.manager
        kind = Kind.FP_TO_FP_FROM_SBV if signed else Kind.FP_TO_FP_FROM_UBV
        operands = [manager.mk_rm_value(_MODES[mode]), self.term]
        value = manager.mk_term(kind, operands, list(EXPONENT_BITS[width]))
        return Real(self.theory, width).computed(value, width, self.is_plain)

    @property
    def filled(self) -> Word:
        """The highest one and all digits below it; 0 of 0."""
        filled, step = self, 1
        while step < self.width:
            filled, step = filled | filled >> step, 2 * step
        return filled


W = TypeVar("W", Word, Truth)


def choose(condition: Truth, a: W, b: W) -> W:
    """a where the condition holds, else b."""
    if condition.is_plain:
        return a if condition.value else b
    if isinstance(a, Truth):
        return (condition & a) | (~condition & b)
    theory = condition.theory
    term = theory.manager.mk_term(Kind.ITE, [condition.term, a.term, b.term])
    return Word(theory, term, a.width)


class Real:
    """A float of 16, 32 or 64 bits, known by its bits, by its value, or by both."""

    __slots__ = ("_bits", "_value", "theory", "width")

    def __init__(
        self, theory: Theory, width: int, bits: Word | None = None, value: Any = None
    ) -> None:
        self.theory, self.width, self._bits, self._value = theory, width, bits, value

    @property
    def has_bits(self) -> bool:
        return self._bits is not None

    @property
    def is_plain(self) -> bool:
        return self._bits is not None and self._bits.is_plain

    @property
    def term(self) -> Any:
        """The value, as the solver takes it."""
        if self._value is None:
            assert self._bits is not None
            self._value = self._new_term(
                Kind.FP_TO_FP_FROM_BV, [self._bits.term], list(EXPONENT_BITS[self.width])
            )
        return self._value

    @property
    def bits(self) -> Word:
        """Bits that have this value; of a NaN any that are one."""
        if self._bits is None:
            bits = self.theory.unnamed(self.width)
            same = self._new_term(Kind.EQUAL, [self.theory.real(bits).term, self._value], [])
            self.theory.definitions.append(Truth(self.theory, same))
            self._bits = bits
        return self._bits

    def _new_term(self, kind: Any, operands: list[Any], indices: list[int]) -> Any:
        return self.theory.manager.mk_term(kind, operands, indices)

    def _result(self, kind: Any, mode: str | None, *others: Real) -> Real:
        """An operation; between numbers it is computed."""
        operands = (self, *others)
        plain = all(x.is_plain for x in operands)
        if self.theory.granted and kind in _GRANTED and not plain:
            return self.theory.real(self.theory.function(kind, [x.bits for x in operands]))
        rounding = [self.theory.manager.mk_rm_value(_MODES[mode])] if mode else []
        value = self._new_term(kind, [*rounding, *(x.term for x in operands)], [])
        return self.computed(value, self.width, plain)

    def computed(self, value: Any, width: int, plain: bool) -> Real:
        """What a term of the solver's is; where it has no variables, its bits."""
        if not plain:
            return Real(self.theory, width, value=value)
        digits = "".join(self.theory.evaluate(value).value())
        return Real(self.theory, width, bits=self.theory.word(int(digits, 2), width))

    def plus(self, other: Real, mode: str = "RNE") -> Real:
        return self._result(Kind.FP_ADD, mode, other)

    def minus(self, other: Real, mode: str = "RNE") -> Real:
        return self._result(Kind.FP_SUB, mode, other)

    __add__, __sub__ = plus, minus

    def times(self, other: Real, mode: str = "RNE") -> Real:
        return self._result(Kind.FP_MUL, mode, other)

    def divided(self, other: Real, mode: str = "RNE") -> Real:
        return self._result(Kind.FP_DIV, mode, other)

    def fused(self, y: Real, z: Real, mode: str = "RNE") -> Real:
        return self._result(Kind.FP_FMA, mode, y, z)

    def root(self, mode: str = "RNE") -> Real:
        return self._result(Kind.FP_SQRT, mode)

    def whole(self, mode: str = "RTZ") -> Real:
        """A whole number, as a float."""
        return self._result(Kind.FP_RTI, mode)

    def converted(self, width: int) -> Real:
        """In another width, to nearest even; a NaN keeps its sign and first digits, made quiet.

        Source    IEEE 754-2019 §6.2.3; Intel SDM vol. 1 §4.8.3.5 (what x86 keeps of a NaN).
        """
        rounding = self.theory.manager.mk_rm_value(RoundingMode.RNE)
        value = self._new_term(
            Kind.FP_TO_FP_FROM_FP, [rounding, self.term], list(EXPONENT_BITS[width])
        )
        result = self.computed(value, width, self.is_plain)
        nan = choose(self.is_nan, self._nan(width), result.bits)
        return Real(self.theory, width, bits=nan, value=result.term)

    def _nan(self, width: int) -> Word:
        """What another width keeps of this NaN."""
        exponent, digits = EXPONENT_BITS[width]
        payload = self.bits.cut(EXPONENT_BITS[self.width][1] - 2, 0)
        if payload.width > digits - 1:
            payload = payload.cut(payload.width - 1, payload.width - digits + 1)
        else:
            more = digits - 1 - payload.width
            payload = payload.joined(self.theory.word(0, more))
        sign = self.bits.cut(self.width - 1, self.width - 1)
        field = self.theory.word((1 << exponent) - 1, exponent)
        return sign.joined(field).joined(payload | 1 << (digits - 2))

    def to_word(self, width: int, signed: bool) -> Word:
        """The whole number toward zero; any number where it does not fit."""
        rounding = self.theory.manager.mk_rm_value(RoundingMode.RTZ)
        kind = Kind.FP_TO_SBV if signed else Kind.FP_TO_UBV
        term = self._new_term(kind, [rounding, self.term], [width])
        if self.is_plain:
            value = self.theory.evaluate(term)
            if value.is_value():
                return self.theory.word(int(value.value(), 2), width)
        return Word(self.theory, term, width)

    def compared(self, relation: str, other: Real) -> Truth:
        """An ordered comparison: false beside a NaN."""
        kinds = {
            "<": Kind.FP_LT, "<=": Kind.FP_LEQ, ">": Kind.FP_GT, ">=": Kind.FP_GEQ,
            "==": Kind.FP_EQUAL,
        }
        if relation == "!=":
            ordered = ~(self.is_nan | other.is_nan)
            return ordered & ~self.compared("==", other)
        term = self._new_term(kinds[relation], [self.term, other.term], [])
        return self._decided(term, self.is_plain and other.is_plain)

    def same(self, other: Real) -> Truth:
        """Whether both are one number with one sign, or both NaN."""
        term = self._new_term(Kind.EQUAL, [self.term, other.term], [])
        return self._decided(term, self.is_plain and other.is_plain)

    def _decided(self, term: Any, plain: bool) -> Truth:
        return Truth(self.theory, self.theory.evaluate(term).is_true() if plain else term)

    @property
    def is_nan(self) -> Truth:
        if self._bits is not None:
            exponent, digits = EXPONENT_BITS[self.width]
            infinity = ((1 << exponent) - 1) << (digits - 1)
            return (self._bits & ((1 << (self.width - 1)) - 1)) > infinity
        return self._decided(self._new_term(Kind.FP_IS_NAN, [self.term], []), False)

    def or_else(self, condition: Truth, other: Real) -> Real:
        """This where the condition holds, else the other."""
        if condition.is_plain:
            return self if condition.value else other
        if self._bits is not None and other._bits is not None:
            return self.theory.real(choose(condition, self._bits, other._bits))
        term = self._new_term(Kind.ITE, [condition.term, self.term, other.term], [])
        return Real(self.theory, self.width, value=term)

