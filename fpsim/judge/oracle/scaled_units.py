"""One output of a unit whose operands are blocks, in exact fractions; used by tests only.

Written from the text of docs/semantics.md §5 and nothing else: slow and obvious.

Source    docs/semantics.md §5; `fpsim.records.scaled_units`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from fpsim.judge.oracle.blocks import plus, times
from fpsim.judge.oracle.rounding import Datum, decode, floor_log2, power, round_exact
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY32, Format, ScaleFormat
from fpsim.records.rounding import RNE
from fpsim.records.scaled_units import ScaledUnit

__all__ = ["ScaledRow", "scaled_output"]

NAN = Datum("nan", 0)


@dataclass(frozen=True)
class ScaledRow:
    """One operand's numbers along K: codes of elements, and codes (or values) of scales."""

    element: Format
    codes: Sequence[int]
    scale: ScaleFormat | Format
    scales: Sequence[int | float]

    def data(self) -> list[Datum]:
        return [decode(code, self.element) for code in self.codes]

    def exponent(self, d: Datum) -> int:
        return max(floor_log2(d.magnitude), self.element.emin)

    def scale_of(self, block: int) -> float:
        value = self.scales[block]
        if isinstance(self.scale, Format):
            return float(value)
        return self.scale.decode(int(value))

    def scale_exponent(self, block: int) -> int:
        """Of a power of two its own; with digits at least that of the smallest normal number."""
        assert isinstance(self.scale, ScaleFormat)
        value = self.scale_of(block)
        if self.scale.number is None:
            return floor_log2(Fraction(value))
        return max(floor_log2(Fraction(value)), self.scale.number.emin) if value else (
            self.scale.number.emin
        )


def scaled_output(unit: ScaledUnit, a: ScaledRow, b: ScaledRow, c: float) -> tuple[Datum, Flags]:
    """c + the sum of both rows' products, before the scales of tensors."""
    special = _special(unit, a, b, c)
    if special is not None:
        return special
    if unit.promotion is not None:
        return _promoted(unit, a, b, c)
    value, flags = c, Flags.NONE
    for first in range(0, len(a.codes), unit.terms):
        value, raised = _call(unit, a, b, first, value)
        flags |= raised
    return _datum(value), flags


def _datum(x: float) -> Datum:
    sign = int(math.copysign(1, x) < 0)
    if math.isnan(x):
        return NAN
    if math.isinf(x):
        return Datum("infinite", sign)
    return Datum("finite", sign, abs(Fraction(x)))


def _special(
    unit: ScaledUnit, a: ScaledRow, b: ScaledRow, c: float
) -> tuple[Datum, Flags] | None:
    """What NaN and infinities give; None where there are none."""
    blocks = range(len(a.scales))
    scales = [row.scale_of(i) for row in (a, b) for i in blocks]
    x, y = a.data(), b.data()
    if any(math.isnan(s) for s in scales) or any(d.kind == "nan" for d in (*x, *y)):
        return NAN, Flags.NONE
    if math.isnan(c):
        return NAN, Flags.NONE
    signs = set() if math.isfinite(c) else {int(c < 0)}
    for k, (u, v) in enumerate(zip(x, y, strict=True)):
        block = k // unit.scale_block
        if "infinite" not in (u.kind, v.kind):
            continue
        if u.is_zero or v.is_zero or 0 in (a.scale_of(block), b.scale_of(block)):
            return NAN, Flags.INVALID
        signs.add(u.sign ^ v.sign)
    if len(signs) == 2:
        return NAN, Flags.INVALID
    return (Datum("infinite", signs.pop()), Flags.NONE) if signs else None


def _call(
    unit: ScaledUnit, a: ScaledRow, b: ScaledRow, first: int, c: float
) -> tuple[float, Flags]:
    """One call that scales enter."""
    if math.isinf(c):
        return c, Flags.NONE
    addends: list[Fraction] = [Fraction(c)]
    exponents = [max(floor_log2(abs(Fraction(c))), BINARY32.emin)] if c else []
    x, y = a.data(), b.data()
    last = min(first + unit.terms, len(x))
    for begin in range(first, last, unit.group):
        block = begin // unit.scale_block
        shift = a.scale_exponent(block) + b.scale_exponent(block)
        terms = range(begin, min(begin + unit.group, last))
        exact = sum((x[k].value * y[k].value for k in terms), Fraction(0))
        scales = Fraction(a.scale_of(block)) * Fraction(b.scale_of(block))
        if unit.group > 1:
            if unit.empty_groups or exact * scales != 0:
                exponents.append(shift)
        elif exact != 0:
            exponents.append(a.exponent(x[begin]) + b.exponent(y[begin]) + shift)
        addends.append(exact * scales)
    if not exponents:
        return 0.0, Flags.NONE
    assert unit.window is not None
    quantum = power(max(exponents) - unit.window)
    total = sum((_cut(v, quantum) for v in addends), Fraction(0))
    return _rounded(total, unit)


def _cut(v: Fraction, quantum: Fraction) -> Fraction:
    whole = math.floor(abs(v) / quantum) * quantum
    return -whole if v < 0 else whole


def _rounded(total: Fraction, unit: ScaledUnit) -> tuple[float, Flags]:
    code, flags = round_exact(total, unit.accumulator, unit.rounding)
    datum = decode(code, unit.accumulator)
    if datum.kind == "infinite":
        return (-math.inf if datum.sign else math.inf), flags & Flags.OVERFLOW
    return (-0.0 if datum.is_zero and datum.sign else float(datum.value)), flags & Flags.OVERFLOW


def _promoted(unit: ScaledUnit, a: ScaledRow, b: ScaledRow, c: float) -> tuple[Datum, Flags]:
    """Blocks from zero, each added by one fma of binary32."""
    flags, x, y = Flags.NONE, a.data(), b.data()
    for block in range(len(a.scales)):
        part = 0.0
        begin = block * unit.scale_block
        for first in range(begin, min(begin + unit.scale_block, len(x)), unit.terms):
            addends, exponents = [Fraction(part)], []
            if part:
                exponents.append(max(floor_log2(abs(Fraction(part))), unit.accumulator.emin))
            for k in range(first, min(first + unit.terms, len(x))):
                product = x[k].value * y[k].value
                if product:
                    exponents.append(a.exponent(x[k]) + b.exponent(y[k]))
                addends.append(product)
            if not exponents:
                part = 0.0
                continue
            assert unit.window is not None
            quantum = power(max(exponents) - unit.window)
            part, raised = _rounded(sum((_cut(v, quantum) for v in addends), Fraction(0)), unit)
            flags |= raised
        of_a, of_b = a.scale_of(block), b.scale_of(block)
        first_, second = (
            (times(of_a, of_b), part) if unit.promotion == "scales first" else
            (times(part, of_a), of_b)
        )
        if not math.isfinite(first_):
            flags |= Flags.OVERFLOW
        c, raised = _fma(first_, second, c)
        flags |= raised
    return _datum(c), flags


def _fma(x: float, y: float, z: float) -> tuple[float, Flags]:
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        value = plus(x * y, z)
        return value, Flags.INVALID if math.isnan(value) else Flags.NONE
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    negative = math.copysign(1, x) * math.copysign(1, y) < 0
    zero_sign = int(negative and math.copysign(1, z) < 0)
    code, flags = round_exact(exact, BINARY32, RNE, sign_of_zero=zero_sign)
    datum = decode(code, BINARY32)
    if datum.kind == "infinite":
        return (-math.inf if datum.sign else math.inf), flags & Flags.OVERFLOW
    return (-0.0 if datum.is_zero and datum.sign else float(datum.value)), flags & Flags.OVERFLOW
