"""Looking at single numbers: fields of a code, neighbours of a real, chances of rounding up.

Everything here is exact (fractions) and slow; it serves people, not arrays.

Source    IEEE 754-2019 §3.3, §3.4; docs/semantics.md §1.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fpsim.elementwise.codes import from_codes
from fpsim.elementwise.inputs import exact, exponent
from fpsim.records.formats import Format, find_number_format
from fpsim.records.rounding import SR, Rounding, Up, find_rounding
from fpsim.state.processor import usual_arithmetic

__all__ = ["Fields", "fields", "neighbours", "probability_up", "real", "value_table"]

Real = int | float | str | Fraction


@dataclass(frozen=True)
class Fields:
    """A code taken apart: |value| = significand * 2**(exponent - precision + 1) for a number.

    >>> from fpsim.records.formats import BINARY16
    >>> third = fields(0x3555, BINARY16)
    >>> isinstance(third, Fields), third.pattern, third.significand, third.exponent
    (True, '0 01101 0101010101', 1365, -2)
    >>> third.value == third.significand * 2.0 ** (third.exponent - BINARY16.precision + 1)
    True
    """

    code: int
    format: Format
    sign: int
    exponent_field: int
    fraction: int
    kind: str  # zero | subnormal | normal | infinity | quiet NaN | signalling NaN
    value: float
    exponent: int | None  # of a number
    significand: int | None

    @property
    def pattern(self) -> str:
        """Sign, exponent and fraction as binary digits.

        >>> from fpsim.records.formats import BINARY16
        >>> fields(0x3C00, BINARY16).pattern
        '0 01111 0000000000'
        """
        fmt = self.format
        exponent = f"{self.exponent_field:0{fmt.exponent_bits}b}"
        return f"{self.sign} {exponent} {self.fraction:0{fmt.nmant}b}"

    @property
    def ulp(self) -> float | None:
        """Distance to the next larger magnitude, of a number."""
        return self.format.ulp(self.value) if self.exponent is not None else None


@usual_arithmetic
def fields(code: int, fmt: Format | str) -> Fields:
    """Sign, exponent, significand, class and value of a code.

    Raises    ValueError for a code beyond the format's width.

    >>> from fpsim.records.formats import E4M3FN
    >>> one = fields(0x38, E4M3FN)
    >>> one.kind, one.exponent, one.significand, one.value
    ('normal', 0, 8, 1.0)
    >>> fields(0x01, E4M3FN).kind, fields(0xFF, E4M3FN).kind
    ('subnormal', 'quiet NaN')
    """
    fmt = find_number_format(fmt)
    value = float(from_codes([code], fmt)[0])
    sign, body = divmod(int(code), 1 << (fmt.bits - 1))
    field, fraction = divmod(body, 1 << fmt.nmant)
    kind = _kind(value, fraction, fmt)
    if not math.isfinite(value):
        return Fields(int(code), fmt, sign, field, fraction, kind, value, None, None)
    significand = fraction + ((1 << fmt.nmant) if field else 0)
    e = (field or 1) - fmt.bias
    return Fields(int(code), fmt, sign, field, fraction, kind, value, e, significand)


def _kind(value: float, fraction: int, fmt: Format) -> str:
    if math.isnan(value):
        quiet = fraction >> (fmt.nmant - 1) or not fmt.has_signalling_nan
        return "quiet NaN" if quiet else "signalling NaN"
    if math.isinf(value):
        return "infinity"
    if value == 0:
        return "zero"
    return "normal" if abs(value) >= fmt.smallest_normal else "subnormal"


@usual_arithmetic
def value_table(fmt: Format | str) -> list[Fields]:
    """Every code of a format of at most 16 bits, in code order.

    >>> from fpsim.records.formats import E2M1FN
    >>> [row.value for row in value_table(E2M1FN)][:8]
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    """
    fmt = find_number_format(fmt)
    if fmt.bits > 16:
        raise ValueError(f"format={fmt.name} has {fmt.n_codes} codes; a table holds at most 65536")
    return [fields(code, fmt) for code in range(fmt.n_codes)]


def real(x: Real) -> Fraction:
    """The number that a float, an integer or a text means ("0.1" is one tenth).

    Exact, but for texts beyond every format and with more digits than any boundary of a rounding
    has (`fpsim.elementwise.inputs.exact`).

    >>> real("0.1"), real(0.5), real("0x1.8p-1"), real("1/3")
    (Fraction(1, 10), Fraction(1, 2), Fraction(3, 4), Fraction(1, 3))
    """
    try:
        if isinstance(x, str):
            return _hexadecimal(x) if "0x" in x.lower() else exact(x)
        return Fraction(x.item() if isinstance(x, np.generic) else x)
    except (OverflowError, ValueError):
        raise ValueError(
            f"x={x!r:.60} is no finite number; give a decimal, a hexadecimal float or a fraction"
        ) from None


_HEXADECIMAL = re.compile(
    r"([+-]?)0x(?=\.?[0-9a-f])([0-9a-f]*)\.?([0-9a-f]*)(?:p([+-]?\d+))?", re.ASCII | re.IGNORECASE
)


def _hexadecimal(text: str) -> Fraction:
    """Every digit counts; beyond 2**±4000 it is that power, as no format has values there."""
    match = _HEXADECIMAL.fullmatch(text.strip())
    if not match:
        raise ValueError
    sign, integer, fraction, power = match.groups()
    digits = int(integer + fraction, 16)
    if not digits:
        return Fraction(0)
    scale = exponent(power or "0") - 4 * len(fraction)
    if abs(digits.bit_length() + scale) > 4000:
        size = Fraction(2) ** (4000 if digits.bit_length() + scale > 0 else -4000)
    else:
        size = digits * Fraction(2) ** scale
    return -size if sign == "-" else size


def _split(x: Fraction, fmt: Format) -> tuple[int, Fraction, Fraction]:
    """(m, w, q) of |x| = (m + w) q, as the rounding modes see it."""
    size = abs(x)
    n, d = size.numerator, size.denominator
    e = n.bit_length() - d.bit_length()
    if size and Fraction(2) ** e > size:
        e -= 1
    q = Fraction(2) ** (max(e if size else fmt.emin, fmt.emin) - fmt.precision + 1)
    m = math.floor(size / q)
    return m, size / q - m, q


@usual_arithmetic
def neighbours(x: Real, fmt: Format | str) -> tuple[float | None, float | None]:
    """The largest value of the format below x and the smallest above it; None where it has none.

    >>> from fpsim.records.formats import BINARY16, E4M3FN
    >>> neighbours("0.1", BINARY16)
    (0.0999755859375, 0.10003662109375)
    >>> neighbours(1, BINARY16)
    (0.99951171875, 1.0009765625)
    >>> neighbours(448, E4M3FN), neighbours(1e6, BINARY16)
    ((416.0, None), (65504.0, inf))
    """
    number, fmt = real(x), find_number_format(fmt)
    return _below(number, fmt), _negated(_below(-number, fmt))


def _negated(x: float | None) -> float | None:
    return None if x is None else 0.0 if x == 0 else -x


def _below(x: Fraction, fmt: Format) -> float | None:
    """Largest value less than x."""
    largest = Fraction(fmt.max)
    if x > largest:
        return fmt.max
    if x <= -largest:
        return -math.inf if fmt.has_infinity else None
    m, w, q = _split(x, fmt)
    if x > 0:
        # Below a power of two the values lie twice as close.
        step = q / 2 if m == 1 << fmt.nmant and q > Fraction(fmt.smallest_subnormal) else q
        return float(m * q if w else m * q - step)
    down = -(m + 1) * q
    return float(down) if down >= -largest else (-math.inf if fmt.has_infinity else None)


@usual_arithmetic
def probability_up(x: Real, fmt: Format | str, rounding: Rounding | str) -> Fraction:
    """Probability that rounding takes x to the next larger magnitude; 0 or 1 unless stochastic.

    Rounding  as x's own grid decides, also beyond the largest finite value.
    Source    docs/semantics.md §1; El Arar et al. 2024 for SR with few bits.

    >>> from fpsim.records.formats import BINARY16
    >>> probability_up(1 + 2**-13, BINARY16, SR(bits=4)), probability_up(1, BINARY16, SR())
    (Fraction(1, 8), Fraction(0, 1))
    """
    number, fmt, rounding = real(x), find_number_format(fmt), find_rounding(rounding)
    m, w, _ = _split(number, fmt)
    if w == 0:
        return Fraction(0)
    if isinstance(rounding, SR):
        r = _digits(number, fmt, rounding)
        return Fraction(_residual(w * 2**r, rounding.residual), 2**r)
    if rounding.stochastic:
        return Fraction(1, 2)
    half = Fraction(1, 2)
    goes_up = {
        Up.NEVER: False, Up.ABOVE_HALF: w > half, Up.FROM_HALF: w >= half, Up.ALWAYS: True
    }
    return Fraction(goes_up[rounding.steps_of(number < 0)[m % 2]])


def _digits(x: Fraction, fmt: Format, rounding: SR) -> int:
    """Random digits that SR uses for x: more below the normals with `subnormal_bits`."""
    r = rounding.random_bits(fmt)
    if rounding.subnormal_bits is None:
        return r
    below = 0
    while abs(x) < Fraction(2) ** (fmt.emin - below) and r + below < rounding.subnormal_bits:
        below += 1
    return r + below


def _residual(scaled: Fraction, how: str) -> int:
    if how == "truncate":
        return math.floor(scaled)
    return math.floor(scaled + Fraction(1, 2)) if how == "half" else round(scaled)
