"""Outputs of a product by the text of docs/semantics.md §5, a hundred times as fast as `units`.

A finite number is an exact fraction whose denominator is one power of two for the whole product,
so that it is a Python integer, of as many digits as it takes. Outputs of infinite or NaN operands,
and the edges of the context's roundings, are left to `fpsim.judge.oracle.units`. The two are
written apart and judge each other.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from fpsim.judge.oracle.rounding import Datum, canonical_nan, decode, encode, infinity
from fpsim.judge.oracle.units import Ask, Draw, holds, no_draw, one_output, stored
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY32, Format
from fpsim.records.rounding import RNE, RTP, RTZ, SR, Rounding

__all__ = ["Outputs", "code_of"]


class SpecialError(Exception):
    """An operand that is no number, infinities of both signs: the other oracle's case."""


class Operand(NamedTuple):
    """The numbers of a row or of a column, in units of their format's last digit."""

    codes: Sequence[int]
    numbers: list[int]
    exponents: list[int]  # 0 of a zero
    finite: bool


class Sum(NamedTuple):
    """A number in units of the product's last digit; a zero may be negative. None: infinity."""

    number: int | None
    negative: bool = False
    flags: Flags = Flags.NONE


@lru_cache(maxsize=1 << 20)
def read(code: int, fmt: Format, flush: bool) -> tuple[int, int] | None:
    """Number in units of the format's last digit, and exponent; None of what is not finite."""
    datum = decode(code, fmt)
    if datum.kind != "finite":
        return None
    last = fmt.emin - fmt.precision + 1
    number = int(datum.magnitude / Fraction(2) ** last)
    exponent = max(last + number.bit_length() - 1, fmt.emin)
    if number == 0 or (flush and last + number.bit_length() - 1 < fmt.emin):
        return 0, 0
    return (-number if datum.sign else number), exponent


def code_of(datum: Datum, fmt: Format) -> int:
    """Code of the oracle's answer."""
    if datum.kind == "nan":
        return canonical_nan(fmt)
    if datum.kind == "infinite":
        return infinity(datum.sign, fmt)
    return encode(datum.sign, datum.magnitude, fmt)


class Outputs:
    """The outputs of one product; rows and columns are codes, read once for all outputs.

    Shapes    a (M, K), b (N, K) columns, start (M, N) of partials.
    """

    def __init__(
        self, ask: Ask, a: Sequence[Sequence[int]], b: Sequence[Sequence[int]],
        start: Sequence[Sequence[int]],
    ) -> None:
        unit = ask.unit
        self.ask, self.unit, self.start = ask, unit, start
        self.rows = [self._operand(codes, ask.a) for codes in a]
        self.columns = [self._operand(codes, ask.b) for codes in b]
        self.last = _last(ask.a) + _last(ask.b) + ask.scale
        formats = [unit.partials, unit.accumulator, unit.join, unit.products, ask.settings.format]
        # Half a unit of every format that is rounded to has to be a whole number.
        self.unit_of_all = min([self.last, *(_last(f) - 1 for f in formats if f is not None)])
        self.scale = Fraction(2) ** self.unit_of_all
        depth = len(a[0])
        self.depth = depth + -depth % unit.channels
        self.order = self._order()
        self.stores = not holds(unit.partials, unit.emitted)

    def _operand(self, codes: Sequence[int], fmt: Format) -> Operand:
        flush = fmt == BINARY32 and self.ask.subnormals == "flush_both"
        numbers = [read(code, fmt, flush) for code in codes]
        finite = [n for n in numbers if n is not None]
        missing = [0] * (-len(codes) % self.unit.channels)
        return Operand(
            codes, [n for n, _ in finite] + missing, [e for _, e in finite] + missing,
            len(finite) == len(numbers),
        )

    def _order(self) -> list[list[list[int]]]:
        """The terms of every call of every pass."""
        unit, passes = self.unit, []
        of_pass = self.depth if unit.calls is None else unit.channels
        for first in range(0, self.depth, of_pass or 1):
            terms = list(range(of_pass))
            if unit.order == "pairs":
                terms = [k for k in terms if k % 4 < 2] + [k for k in terms if k % 4 >= 2]
            calls = [terms[q : q + unit.terms] for q in range(0, of_pass, unit.terms)]
            passes.append([[first + k for k in call] for call in calls])
        return passes

    def __call__(self, row: int, column: int, draw: Draw = no_draw) -> tuple[int, Flags]:
        """Code and flags of an output."""
        x, y, c = self.rows[row], self.columns[column], self.start[row][column]
        ask = self.ask
        try:
            if not (x.finite and y.finite):
                raise SpecialError
            total = self._output(x, y, c, draw)
        except SpecialError:
            datum, flags = one_output(ask, x.codes, y.codes, c, draw)
            return code_of(datum, ask.settings.format), flags
        return self._code(total, ask.settings.format), total.flags

    def _output(self, x: Operand, y: Operand, c: int, draw: Draw) -> Sum:
        unit, ask = self.unit, self.ask
        flush = unit.partials == BINARY32 and ask.subnormals == "flush_both"
        start = read(c, unit.partials, flush)
        if start is None:
            raise SpecialError
        negative = decode(c, unit.partials).sign == 1
        partial = Sum(start[0] << (_last(unit.partials) - self.unit_of_all), negative)
        flags = Flags.NONE
        for number, calls in enumerate(self.order):
            partial = self._pass(x, y, calls, partial)
            flags |= partial.flags
            if self.stores:
                partial = self._stored(partial, unit.partials, draw(number))
                flags |= partial.flags
        if ask.settings.format != unit.partials:
            partial = self._stored(partial, ask.settings.format, draw(len(self.order)))
            flags |= partial.flags
        return partial._replace(flags=flags)

    def _pass(self, x: Operand, y: Operand, calls: list[list[int]], partial: Sum) -> Sum:
        """The sums of a pass; their flags stay until its end."""
        join = self.unit.join
        total, flags = Sum(0) if join else partial, Flags.NONE
        for terms in calls:
            total = self._call(x, y, terms, total)
            flags |= total.flags
        if join:
            if total.number is None and partial.number is None and total[1] != partial[1]:
                raise SpecialError
            if partial.number is None:
                total = partial
            elif total.number is not None:
                total = self._rounded(partial.number + total.number, join, RNE)
                flags |= total.flags
        return total._replace(flags=flags)

    def _call(self, x: Operand, y: Operand, terms: list[int], c: Sum) -> Sum:
        unit = self.unit
        if c.number is None:
            if unit.products is not None:
                raise SpecialError  # a product that overflows is another infinity
            return c._replace(flags=Flags.NONE)
        shift = self.last - self.unit_of_all
        addends, exponents = [c.number], []
        if c.number:
            e = abs(c.number).bit_length() - 1 + self.unit_of_all
            exponents.append(max(e, unit.accumulator.emin))
        for k in terms:
            product = x.numbers[k] * y.numbers[k] << shift
            if not product:
                continue
            e = x.exponents[k] + y.exponents[k] + self.ask.scale
            if unit.products is not None:
                rounded = self._rounded(product, unit.products, unit.rounding)
                if rounded.flags:
                    raise SpecialError
                product = rounded.number or 0
                if not product:
                    continue
                e = abs(product).bit_length() - 1 + self.unit_of_all
                e = max(e, unit.products.emin)
            addends.append(product)
            exponents.append(e)
        if unit.window is not None and exponents:
            digits = max(exponents) - unit.window - self.unit_of_all
            if digits > 0:
                addends = [_cut(n, digits, unit.cut == "sticky") for n in addends]
        return self._rounded(sum(addends), unit.accumulator, unit.rounding)

    def _rounded(self, number: int, fmt: Format, mode: Rounding) -> Sum:
        """A sum rounded to nearest even or toward zero; +0 where it is exactly zero."""
        if not number:
            return Sum(0)
        negative, size = number < 0, abs(number)
        e = size.bit_length() - 1 + self.unit_of_all
        if e <= fmt.emin and fmt.emin == BINARY32.emin and self.ask.subnormals != "keep":
            size = self._flushed(size, e, fmt, mode)
        else:
            size = _nearest(size, max(e, fmt.emin) - fmt.precision + 1 - self.unit_of_all, mode)
        if size and size.bit_length() - 1 + self.unit_of_all > fmt.emax:
            if mode != RTZ:
                return Sum(None, negative, Flags.OVERFLOW)
            largest = int(Fraction(fmt.max) / self.scale)
            return Sum(-largest if negative else largest, negative, Flags.OVERFLOW)
        return Sum(-size if negative else size, negative)

    def _flushed(self, size: int, e: int, fmt: Format, mode: Rounding) -> int:
        """The same of a size about the smallest normal number, where tiny sums become zero."""
        smallest = 1 << fmt.emin - self.unit_of_all
        unbounded = _nearest(size, e - fmt.precision + 1 - self.unit_of_all, mode)
        if (size if self.ask.settings.tininess == "before" else unbounded) < smallest:
            return 0
        return _nearest(size, fmt.emin - fmt.precision + 1 - self.unit_of_all, mode)

    def _stored(self, x: Sum, fmt: Format, word: int) -> Sum:
        """A number rounded by the context; the usual case here, the others by the other oracle."""
        s = self.ask.settings
        size = abs(x.number) if x.number is not None else 0
        e = size.bit_length() - 1 + self.unit_of_all
        flushes = s.subnormals != "keep" and s.format == fmt and e <= fmt.emin
        if size and not flushes:
            digits = max(e, fmt.emin) - fmt.precision + 1 - self.unit_of_all
            rounded = _by_mode(size, digits, s.rounding, x.negative, fmt, word)
            if rounded is not None and rounded <= int(Fraction(fmt.max) / self.scale):
                negative = x.negative and (rounded != 0 or fmt.has_negative_zero)
                return Sum(-rounded if negative else rounded, negative)
        datum, flags = stored(self.ask, self._datum(x), fmt, word)
        if datum.kind == "nan":
            raise SpecialError
        if datum.kind == "infinite":
            return Sum(None, datum.sign == 1, flags)
        return Sum(int(datum.value / self.scale), datum.sign == 1, flags)

    def _datum(self, x: Sum) -> Datum:
        if x.number is None:
            return Datum("infinite", int(x.negative))
        return Datum("finite", int(x.negative), abs(x.number) * self.scale)

    def _code(self, x: Sum, fmt: Format) -> int:
        if not x.number:
            return code_of(self._datum(x), fmt)
        size = abs(x.number)
        e = max(size.bit_length() - 1 + self.unit_of_all, fmt.emin)
        size >>= e - fmt.precision + 1 - self.unit_of_all
        hidden = 1 << fmt.precision - 1
        body = size if size < hidden else (e + fmt.bias) * hidden + size - hidden
        return (int(x.negative) << fmt.bits - 1) + body


def _by_mode(
    size: int, digits: int, mode: Rounding, negative: bool, fmt: Format, word: int
) -> int | None:
    """A magnitude whose last digits are rounded away; None in modes that are not written here."""
    if digits <= 0:
        return size
    if mode in (RNE, RTZ):
        return _nearest(size, digits, mode)
    quotient, rest = divmod(size, 1 << digits)
    if mode == RTP:
        quotient += rest != 0 and not negative
    elif isinstance(mode, SR) and mode.residual == "truncate" and mode.subnormal_bits is None:
        r = mode.random_bits(fmt)
        quotient += (rest << r >> digits) + (word >> 32 - r) >= 1 << r
    else:
        return None
    return quotient << digits


def _last(fmt: Format) -> int:
    """Exponent of the last digit of a format."""
    return fmt.emin - fmt.precision + 1


def _cut(number: int, digits: int, sticky: bool) -> int:
    """The magnitude without its last digits; with an odd last one for those, if sticky."""
    size = abs(number) >> digits
    if sticky and size << digits != abs(number):
        size |= 1
    size <<= digits
    return -size if number < 0 else size


def _nearest(size: int, digits: int, mode: Rounding) -> int:
    """A magnitude whose last digits are rounded away: to nearest even, or toward zero."""
    if digits <= 0:
        return size
    quotient, rest = divmod(size, 1 << digits)
    if mode != RTZ:
        quotient += 2 * rest + (quotient & 1) > 1 << digits
    return quotient << digits
