"""For users' own tests: hypothesis strategies for a format's numbers, and the laws they obey.

A format is a `Format` or its name.

A law takes a Context and plain numbers and raises AssertionError with the numbers where it is
broken. Operands are values of the context's format (`numbers`, `codes`); arguments named `real`
may be any float. Needs hypothesis (the extra `testing`).

>>> from hypothesis import find
>>> half = Context("binary16")
>>> for law in (sterbenz, two_sum, fast_two_sum, product_error):  # of two operands
...     law(half, 1.5, 1.25)
>>> for law in (sign_symmetric, idempotent, directed_bounds, error_bound, overflow_result):
...     law(half, 70000.1)  # of any real number
>>> monotone(half, 0.1, 1 / 3)
>>> power_of_two_scaling(half, 1.5, -3)
>>> exact_zero_sign(half, 1.5)
>>> sr_between(half, 0.1, bits=8, r=200)
>>> sr_keeps_exact(half, 1.5, bits=8, r=200)
>>> sr_zero_truncates(half, 0.1, bits=8)
>>> two_sum(Context("binary16", subnormals="flush_results"), 1.5, 1.25)

Strategies shrink to the simplest number that does what is asked:

>>> find(subnormal("binary16"), lambda x: True) == Context("binary16").format.smallest_subnormal
True
>>> find(near_overflow("binary16"), lambda x: x > 65504) > 65504
True
>>> find(near_tie("e4m3fn"), lambda x: True) * 2  # between 0 and the smallest subnormal
0.001953125
>>> find(shapes(min_dims=2), lambda shape: 0 not in shape)
(1, 1)

Source    Sterbenz 1974; Dekker 1971; Knuth, TAOCP 2 §4.2.2; Boldo & Daumas 2003 (product error);
          IEEE 754-2019 §4.3, §6.3, §7.4; Croci et al. 2022 (stochastic rounding).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies
from numpy.typing import NDArray

from fpsim.context import Context
from fpsim.elementwise.codes import from_codes
from fpsim.inspect.probe import neighbours
from fpsim.records.flags import Flags
from fpsim.records.formats import Format, find_number_format
from fpsim.records.rounding import RNE, RTN, RTP, SR, Rounding, Up
from fpsim.state.bits import Replay

__all__ = [
    "arrays", "codes", "error_bound", "exact_zero_sign", "fast_two_sum", "idempotent", "monotone",
    "near_overflow", "near_tie", "numbers", "overflow_result", "power_of_two_scaling",
    "product_error", "shapes", "sign_symmetric", "sr_between", "sr_keeps_exact",
    "sr_zero_truncates", "sterbenz", "subnormal", "two_sum", "directed_bounds",
]

# Strategies ----------------------------------------------------------------------------------


def codes(fmt: Format | str) -> st.SearchStrategy[int]:
    """Codes of the format; zeros, ends, subnormals and specials are as likely as all others.

    They shrink to numbers of few digits near 1, and to 1 itself.

    >>> from hypothesis import find
    >>> hex(find(codes("binary16"), lambda code: True))
    '0x3c00'
    """
    fmt = find_number_format(fmt)
    hidden, half, n = 1 << fmt.nmant, 1 << (fmt.bits - 1), fmt.n_codes
    centres = (0, hidden, fmt.bias * hidden, half - hidden, half - 1)
    near = sorted({(c + d) % half + s for c in centres for d in (-1, 0, 1) for s in (0, half)})
    simple = _by_simplicity(fmt)
    return st.integers(0, 2 * n - 1).map(lambda i: simple(i) if i < n else near[i % len(near)])


def _by_simplicity(fmt: Format) -> Callable[[int], int]:
    """All codes in an order: fewest digits first, then by the distance of the exponent from 1's."""
    fields, width = 1 << (fmt.bits - 1 - fmt.nmant), fmt.nmant
    exponents = sorted(range(fields), key=lambda field: (abs(field - fmt.bias), -field))

    def code(i: int) -> int:
        reversed_digits, rest = divmod(i, 2 * fields)
        digits = int(f"{reversed_digits:0{width}b}"[::-1], 2)
        return (rest % 2 << (fmt.bits - 1)) | (exponents[rest // 2] << width) | digits

    return code


def numbers(fmt: Format | str) -> st.SearchStrategy[float]:
    """Finite values of the format.

    >>> from hypothesis import given
    >>> @given(numbers("e4m3fn"))
    ... def test_doubling_is_exact_or_overflows(x):
    ...     twice = Context("e4m3fn", overflow="saturate").array(x) * 2
    ...     assert abs(float(twice)) == min(abs(2 * x), 448)
    >>> test_doubling_is_exact_or_overflows()
    """
    fmt = find_number_format(fmt)
    return codes(fmt).map(lambda c: _value(c, fmt)).filter(math.isfinite)


def subnormal(fmt: Format | str) -> st.SearchStrategy[float]:
    """Subnormal values of the format, both signs, zero left out.

    >>> from hypothesis import given
    >>> @given(subnormal("binary16"))
    ... def test_a_machine_that_flushes_loses_them(x):
    ...     assert float(Context("binary16", subnormals="flush_both").array(x) + 0.0) == 0 != x
    >>> test_a_machine_that_flushes_loses_them()
    """
    fmt = find_number_format(fmt)
    return st.builds(
        lambda m, sign: sign * m * fmt.smallest_subnormal,
        st.integers(1, (1 << fmt.nmant) - 1),
        st.sampled_from([1.0, -1.0]),
    )


def near_tie(fmt: Format | str) -> st.SearchStrategy[float]:
    """Floats at the middle of two neighbours or next to it, down to the last digit of binary64.

    >>> from hypothesis import given
    >>> @given(near_tie("binary16"))
    ... def test_an_error_is_at_most_half_an_ulp(real):
    ...     half = Context("binary16", overflow="infinity")
    ...     rounded = float(half.array(real))
    ...     assert math.isinf(rounded) or abs(rounded - real) <= half.format.ulp(real) / 2
    >>> test_an_error_is_at_most_half_an_ulp()
    """
    fmt = find_number_format(fmt)
    tails = st.integers(2, 52 - fmt.precision).map(lambda k: math.ldexp(1.0, -k))
    nudges = st.one_of(st.just(0.0), tails, tails.map(lambda t: -t))

    def build(m: int, e: int, nudge: float, sign: float) -> float:
        e = e if m >> fmt.nmant else fmt.emin  # a short significand is a subnormal one
        return sign * math.ldexp(m + 0.5 + nudge, e - fmt.nmant)

    return st.builds(
        build,
        st.integers(0, (1 << fmt.precision) - 1),
        st.integers(fmt.emin, fmt.emax),
        nudges,
        st.sampled_from([1.0, -1.0]),
    )


def near_overflow(fmt: Format | str) -> st.SearchStrategy[float]:
    """Floats around the largest value and the point from which nearest rounding overflows.

    >>> from hypothesis import given
    >>> @given(near_overflow("e4m3fn"))
    ... def test_what_saturates_stays_finite(real):
    ...     assert abs(float(Context("e4m3fn", overflow="saturate").array(real))) <= 448
    >>> test_what_saturates_stays_finite()
    """
    fmt = find_number_format(fmt)
    unit = fmt.ulp(fmt.max)
    steps = st.integers(-8, 24).map(lambda k: fmt.max + k * unit / 8)
    nudged = st.tuples(steps, st.sampled_from([-math.inf, math.inf])).map(
        lambda pair: math.nextafter(*pair)
    )
    far = st.integers(1, 20).map(lambda k: math.ldexp(fmt.max, k))
    size = st.one_of(steps, nudged, far).filter(math.isfinite)
    return st.tuples(size, st.sampled_from([1.0, -1.0])).map(math.prod)


def shapes(
    *, min_dims: int = 0, max_dims: int = 3, min_side: int = 0, max_side: int = 5
) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of arrays, those without elements and without axes included; they shrink to ().

    >>> from hypothesis import given
    >>> @given(arrays("binary16", shapes(min_dims=1)))
    ... def test_turning_signs_twice_changes_no_code(values):
    ...     x = Context("binary16").wrap(values)
    ...     assert (-(-x)).codes().tolist() == x.codes().tolist()
    >>> test_turning_signs_twice_changes_no_code()
    """
    return numpy_strategies.array_shapes(
        min_dims=min_dims, max_dims=max_dims, min_side=min_side, max_side=max_side
    )


def arrays(
    fmt: Format | str,
    shape: int | tuple[int, ...] | st.SearchStrategy[tuple[int, ...]],
    elements: st.SearchStrategy[int] | st.SearchStrategy[float] | None = None,
) -> st.SearchStrategy[NDArray[Any]]:
    """Carrier arrays of the format's values.

    shape       a shape, or a strategy for it (`shapes`).
    elements    whole numbers are codes (`codes`, the default), floats are values (`numbers`).
    Raises      ValueError where a float is no value of the format, or a code is out of range.

    >>> from hypothesis import find
    >>> from fpsim.records.formats import E4M3FN
    >>> find(arrays(E4M3FN, shapes(min_dims=1), numbers(E4M3FN)), lambda a: a.size > 1)
    array([1., 1.], dtype=float32)
    """
    fmt = find_number_format(fmt)
    element = codes(fmt) if elements is None else elements

    def filled(size: int | tuple[int, ...]) -> st.SearchStrategy[NDArray[Any]]:
        n = math.prod((size,) if isinstance(size, int) else size)
        flat = st.lists(element.map(lambda one: _code(one, fmt)), min_size=n, max_size=n)
        return flat.map(lambda c: from_codes(np.array(c, fmt.code_dtype), fmt).reshape(size))

    return shape.flatmap(filled) if isinstance(shape, st.SearchStrategy) else filled(shape)


def _code(element: float, fmt: Format) -> int:
    """The code that an element of an array strategy stands for."""
    if isinstance(element, (int, np.integer)) and not isinstance(element, bool):
        if not 0 <= element < fmt.n_codes:
            raise ValueError(
                f"elements gave {element!r}, which is no code of {fmt.name}; whole numbers are "
                f"codes from 0 to {fmt.n_codes - 1}, values are floats"
            )
        return int(element)
    exact = Context(fmt).array(float(element))
    if not _is_same(float(exact), float(element)):
        raise ValueError(
            f"elements gave {element!r}, which is no value of {fmt.name}; draw from "
            "numbers(format) or codes(format)"
        )
    return int(exact.codes())


def _value(code: int, fmt: Format) -> float:
    return float(from_codes(np.array([code], fmt.code_dtype), fmt)[0])


# Operations that laws use -----------------------------------------------------------------------


def _untrapped(context: Context, **choices: Any) -> Context:
    """A context of the same choices but these, in which a law may overflow on its way."""
    return context.replace(traps=Flags.NONE, **choices)


def _gradual(context: Context, **choices: Any) -> Context:
    """The same with subnormals: a law of exact results holds nowhere else."""
    return _untrapped(context, subnormals="keep", **choices)


def _rounded(context: Context, real: float, rounding: Rounding | None = None) -> float:
    """The value that a context of the same format and policies gives for a real."""
    mine = _untrapped(context, rounding=context.rounding if rounding is None else rounding)
    return float(mine.array(real))


def _sum(context: Context, x: float, y: float) -> float:
    return float(context.add(context.array(x), context.array(y)))


def _difference(context: Context, x: float, y: float) -> float:
    return float(context.subtract(context.array(x), context.array(y)))


def _product(context: Context, x: float, y: float) -> float:
    return float(context.multiply(context.array(x), context.array(y)))


def _is_same(x: float, y: float) -> bool:
    """Equal, with the sign of zero; NaN is the same as NaN."""
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) and math.isnan(y)
    return x == y and math.copysign(1, x) == math.copysign(1, y)


def _is_value(x: Fraction, fmt: Format) -> bool:
    """Whether the format holds x."""
    quantum = Fraction(fmt.ulp(float(x)) if abs(x) <= Fraction(fmt.max) else 0)
    return x == 0 or (quantum > 0 and (x / quantum).denominator == 1)


def _ends(real: float, fmt: Format) -> tuple[float, float]:
    """rd(x) and ru(x) of a real in range, from the format alone."""
    if _is_value(Fraction(real), fmt):
        return real, real
    below, above = neighbours(real, fmt)
    assert below is not None, "a real in range has a value below it"
    assert above is not None, "a real in range has a value above it"
    return below, above


def _check(holds: bool, law: str, context: Context, *operands: float) -> None:
    shown = ", ".join(float(v).hex() for v in operands)
    assert holds, f"{law} is broken in {context!r} for {shown}"


# Laws of exact differences and errors --------------------------------------------------------


def sterbenz(context: Context, x: float, y: float) -> None:
    """y/2 <= x <= 2y makes x - y exact, in every mode, subnormals kept.

    >>> half = Context("binary16")
    >>> sterbenz(half, 1.5, 1.25)
    >>> sterbenz(half, 2.0**-24, 2.0**-23)  # subnormals
    """
    if not (min(x, 2 * y) == x and y / 2 <= x) or y < 0:
        return
    difference = _difference(_gradual(context), x, y)
    _check(Fraction(difference) == Fraction(x) - Fraction(y), "Sterbenz", context, x, y)


def two_sum(context: Context, x: float, y: float) -> None:
    """Knuth's six operations give s + e = x + y exactly (nearest, no overflow, subnormals kept).

    >>> two_sum(Context("binary16"), 1.0, 2048.0)  # 2048 and an error of 1
    """
    nearest = _gradual(context, rounding=RNE)
    a, b = nearest.array(x), nearest.array(y)
    s = a + b
    bb = s - a
    e = (a - (s - bb)) + (b - bb)
    if nearest.flags & Flags.OVERFLOW:
        return
    exact = Fraction(float(s)) + Fraction(float(e)) == Fraction(x) + Fraction(y)
    _check(exact, "TwoSum", context, x, y)


def fast_two_sum(context: Context, x: float, y: float) -> None:
    """Dekker's three operations do the same where the first operand is not the smaller one.

    >>> fast_two_sum(Context("binary16"), 2048.0, 1.0)  # the larger first
    """
    large, small = (x, y) if abs(x) >= abs(y) else (y, x)
    nearest = _gradual(context, rounding=RNE)
    a, b = nearest.array(large), nearest.array(small)
    s = a + b
    e = b - (s - a)
    if nearest.flags & Flags.OVERFLOW:
        return
    exact = Fraction(float(s)) + Fraction(float(e)) == Fraction(x) + Fraction(y)
    _check(exact, "FastTwoSum", context, x, y)


def product_error(context: Context, x: float, y: float) -> None:
    """x y - fl(x y) is a value of the format if e_x + e_y >= emin + p - 1 (nearest).

    >>> product_error(Context("binary16"), 1 + 2**-10, 1 + 2**-10)  # an error of 2**-20
    """
    fmt = context.format
    if x == 0 or y == 0:
        return
    exponents = math.frexp(x)[1] + math.frexp(y)[1] - 2
    product = _product(_gradual(context, rounding=RNE), x, y)
    if exponents < fmt.emin + fmt.precision - 1 or abs(Fraction(x) * Fraction(y)) > fmt.max:
        return
    error = Fraction(x) * Fraction(y) - Fraction(product)
    _check(_is_value(error, fmt), "the product's error is a value", context, x, y)


# Laws of one rounding ------------------------------------------------------------------------


def monotone(context: Context, real: float, other: float) -> None:
    """x <= y gives fl(x) <= fl(y) in every deterministic mode.

    >>> for mode in ("RNE", "RTZ", "RTO"):
    ...     monotone(Context("e4m3fn", rounding=mode), 1.0624, 1.0626)  # both sides of a tie
    """
    low, high = _rounded(context, min(real, other)), _rounded(context, max(real, other))
    if context.rounding.stochastic or math.isnan(low) or math.isnan(high):
        return
    _check(low <= high, "monotone rounding", context, real, other)


def sign_symmetric(context: Context, real: float) -> None:
    """fl(-x) = -fl(x), with upward and downward exchanged; but one zero has one sign.

    >>> sign_symmetric(Context("binary16", rounding="RTP"), 0.1)  # -0.1 toward minus infinity
    """
    mirrored = {RTP: RTN, RTN: RTP}.get(context.rounding, context.rounding)
    if context.rounding.stochastic:
        return
    minus = -_rounded(context, -real, mirrored)
    plus = _rounded(context, real)
    same = _is_same(plus, minus) or (plus == minus == 0 and not context.format.has_negative_zero)
    _check(same, "rounding is symmetric", context, real)


def idempotent(context: Context, real: float) -> None:
    """A rounded value is a fixed point: rounding it again changes nothing and raises nothing.

    >>> idempotent(Context("e2m1fn"), 2.4)  # 2, and 2 again without a flag
    """
    once = _rounded(context, real)
    if not math.isfinite(once):
        return
    again = _untrapped(context)
    _check(_is_same(float(again.array(once)), once), "rounding is idempotent", context, real)
    _check(again.flags == Flags.NONE, "values raise no flags", context, real)


def power_of_two_scaling(context: Context, x: float, k: int) -> None:
    """2**k x is exact while it is among the normals, subnormals kept.

    >>> power_of_two_scaling(Context("binary16"), 1.0009765625, -14)
    """
    fmt = context.format
    scaled = math.ldexp(x, k)
    if x == 0 or not fmt.smallest_normal <= abs(scaled) <= fmt.max:
        return
    if not fmt.smallest_normal <= math.ldexp(1.0, k) <= fmt.max:
        return
    product = _product(_gradual(context), x, math.ldexp(1.0, k))
    _check(product == scaled, "scaling by 2**k is exact", context, x, k)


def directed_bounds(context: Context, real: float) -> None:
    """rd(x) <= x <= ru(x), both x itself where x is a value, else neighbours.

    >>> directed_bounds(Context("bfloat16"), 1 / 3)  # 0.33203125 and 0.333984375
    """
    keep = _gradual(context)
    down, up = _rounded(keep, real, RTN), _rounded(keep, real, RTP)
    if math.isnan(down) or math.isnan(up) or abs(real) > context.format.max:
        return
    exact = Fraction(real)
    _check(down <= real <= up, "rd(x) <= x <= ru(x)", context, real)
    _check((down == up) == _is_value(exact, context.format), "rd = ru at values", context, real)


def error_bound(context: Context, real: float) -> None:
    """|fl(x) - x| is at most ulp(x)/2 to nearest and below ulp(x) in every mode, in range.

    >>> error_bound(Context("e5m2"), 1.1)  # half an ulp
    >>> error_bound(Context("e5m2", rounding="RAZ"), 1.1)  # an ulp
    """
    fmt = context.format
    result = _rounded(_gradual(context), real)
    if abs(real) > fmt.max or not math.isfinite(result):
        return
    error, unit = abs(Fraction(result) - Fraction(real)), Fraction(fmt.ulp(real))
    nearest = _is_nearest(context.rounding)
    _check(error <= unit / 2 if nearest else error < unit, "error bound", context, real)


def _is_nearest(rounding: Rounding) -> bool:
    """Whether only halves are open."""
    if rounding.stochastic:
        return False
    steps = {*rounding.steps_of(negative=False), *rounding.steps_of(negative=True)}
    return steps <= {Up.ABOVE_HALF, Up.FROM_HALF}


def exact_zero_sign(context: Context, x: float) -> None:
    """x - x is +0, but -0 when rounding down; -0 + -0 is -0 (where there is a -0).

    >>> exact_zero_sign(Context("binary16", rounding="RTN"), 1.5)  # -0
    """
    if not math.isfinite(x):
        return
    signed = context.format.has_negative_zero
    zero = -0.0 if signed and context.rounding.minus_zero else 0.0
    plain = _untrapped(context)
    _check(_is_same(_difference(plain, x, x), zero), "sign of an exact zero", context, x)
    minus = -0.0 if signed else 0.0
    _check(_is_same(_sum(plain, -0.0, -0.0), minus), "-0 + -0 is -0", context, x)


def overflow_result(context: Context, real: float) -> None:
    """Beyond the range: the policy's value or, where the mode points inward, the largest value.

    >>> for overflow in ("saturate", "infinity", "nan"):
    ...     overflow_result(Context("binary16", overflow=overflow), 70000.0)
    """
    fmt = context.format
    if not math.isfinite(real) or abs(real) < fmt.max + fmt.ulp(fmt.max):
        return
    fresh = _untrapped(context)
    result = float(fresh.array(real))
    inward = context.rounding.stops_at_largest(real < 0)
    choice = "saturate" if inward else context.core.settings.overflow
    largest = math.copysign(fmt.max, real)
    expected = {
        "saturate": largest, "infinity": math.copysign(math.inf, real), "nan": math.nan,
    }[str(choice)]
    same = math.isnan(result) if math.isnan(expected) else result == expected
    _check(same, "overflow", context, real)
    _check(fresh.flags == Flags.OVERFLOW | Flags.INEXACT, "overflow flags", context, real)


# Laws of stochastic rounding -----------------------------------------------------------------


def _drawn(context: Context, real: float, rounding: SR, r: int) -> float:
    """The result with these random digits, subnormals kept."""
    fixed = _gradual(context, rounding=rounding, bits=Replay([np.uint32(r)]))
    return float(fixed.array(real))


def sr_between(context: Context, real: float, bits: int, r: int) -> None:
    """Stochastic rounding gives rd(x) or ru(x), whatever the random digits.

    >>> for r in (0, 128, 255):
    ...     sr_between(Context("binary16"), 0.1, bits=8, r=r)
    """
    if abs(real) > context.format.max:
        return
    result = _drawn(context, real, SR(bits), r)
    _check(result in _ends(real, context.format), "SR in {rd, ru}", context, real, r)


def sr_keeps_exact(context: Context, x: float, bits: int, r: int) -> None:
    """A value of the format never moves.

    >>> sr_keeps_exact(Context("binary16"), 1.5, bits=8, r=255)
    """
    for residual in ("truncate", "half", "even"):
        result = _drawn(context, x, SR(bits, residual), r)
        _check(_is_same(result, x), "exact values never move", context, x, r)


def sr_zero_truncates(context: Context, real: float, bits: int) -> None:
    """With all random digits zero SR is truncation.

    >>> sr_zero_truncates(Context("binary16"), -0.1, bits=8)
    """
    if abs(real) > context.format.max:
        return
    down, up = _ends(real, context.format)
    result = _drawn(context, real, SR(bits), 0)
    _check(result == (up if real < 0 else down), "R = 0 truncates", context, real)
