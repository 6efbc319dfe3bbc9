"""What people hand in: texts beside exact fractions, huge exponents, kinds that are refused.

Kinds: differential (Fraction, the oracle), corners.
"""

from __future__ import annotations

import math
import random
import time
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.inputs import decimal, exact, exponent, floats, scalar, to_odd
from fpsim.judge import oracle
from tests.tiers import pick

SMALLEST, LARGEST = 2.0**-1000, np.finfo(np.float64).max


def reference(x: Fraction) -> float:
    """Rounded to odd by the definition: the float if there is one, else the odd neighbour."""
    if abs(x) > Fraction(LARGEST):
        return LARGEST if x > 0 else -LARGEST
    nearest = float(x)
    if Fraction(nearest) == x:
        return nearest
    away = math.inf if Fraction(nearest) < x else -math.inf
    pair = (nearest, math.nextafter(nearest, away))
    (odd,) = (v for v in pair if np.float64(v).view(np.uint64) & np.uint64(1))
    return odd


def test_a_rational_is_rounded_to_odd():
    draw = random.Random(1)
    for _ in range(pick(3000, 30_000, 300_000)):
        numerator = draw.getrandbits(draw.choice((1, 53, 54, 55, 60, 200)))
        x = Fraction(numerator, draw.getrandbits(draw.choice((1, 3, 64))) + 1)
        x *= draw.choice((-1, 1)) * Fraction(2) ** draw.randint(-700, 700)
        assert to_odd(x) == reference(x), x
        if x:
            assert math.copysign(1, to_odd(x)) == (1 if x > 0 else -1)


def test_the_last_binade_is_rounded_as_every_other():
    """From 2**1023 on; the largest number stands for all beyond."""
    top = Fraction(2) ** 1024
    for x in (top / 2, top / 2 + 1, top * 2 / 3, Fraction(LARGEST), top - 1, top, top * 2 / 3 * 2):
        assert to_odd(x) == reference(x), x
        assert to_odd(-x) == reference(-x), x


def test_texts_are_the_numbers_that_they_mean():
    draw = random.Random(2)
    for _ in range(pick(2000, 20_000, 100_000)):
        digits = str(draw.getrandbits(draw.choice((4, 60, 300))))
        point = draw.randint(0, len(digits))
        text = f"{draw.choice(('', '+', '-'))}{digits[:point]}.{digits[point:]}"
        text += draw.choice(("", f"e{draw.randint(-280, 280)}", f"E+{draw.randint(0, 99)}"))
        assert exact(text) == Fraction(text), text
        assert decimal(text) == reference(Fraction(text)), text
        native = decimal(text, native=True)
        assert native == float(text), text
        assert math.copysign(1, native) == math.copysign(1, float(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1/3", Fraction(1, 3)), ("-6/4", Fraction(-3, 2)), ("1_0/2_0", Fraction(1, 2)),
        (" 1_000.5_0e-0_2\n", Fraction("10.005")), ("1.", Fraction(1)), (".5", Fraction(1, 2)),
        ("+.5E+01", Fraction(5)), ("007", Fraction(7)), ("1e-1", Fraction(1, 10)),
    ],
)
def test_spellings(text, value):
    assert exact(text) == value


# Exponents and digits without end ---------------------------------------------------------------

LONG = "9" * 5000
BEYOND = [
    "1e5000",
    "1e999999999",
    f"1e{LONG}",
    "1" + "0" * 99_999,
    LONG,
    f"0.001e+{LONG}",
    "1e1001",
]
BELOW = ["1e-5000", "1e-999999999", f"1e-{LONG}", "." + "0" * 99_999 + "1", f"{LONG}e-{LONG}"]
ZERO = ["0e999999999", f"0e{LONG}", f"0.000e-{LONG}", "0" * 99_999, "." + "0" * 99_999, "0/7"]


@pytest.mark.parametrize("sign", ["", "-", "+"])
def test_huge_exponents_are_decided_at_once(sign):
    one = math.copysign(1, float(f"{sign}1"))
    start = time.perf_counter()
    for text in BEYOND:
        assert decimal(sign + text) == one * LARGEST
        assert decimal(sign + text, native=True) == one * math.inf
    for text in BELOW:
        assert decimal(sign + text) == one * SMALLEST
        for value in (decimal(sign + text, native=True), *map(decimal, [sign + z for z in ZERO])):
            assert (value, math.copysign(1, value)) == (0, one)
    assert time.perf_counter() - start < 2


#: Formats and modes; the quick tier has every mode in all but the format with one zero.
HUGE = [
    (fmt, mode)
    for fmt in (fp.BINARY16, fp.BINARY32, fp.E4M3FN, fp.E2M1FN, fp.F143)
    for mode in ("RNE", "RTZ", "RTP", "RTN", "RAZ", "RTO")
]


@pytest.mark.parametrize(("fmt", "mode"), pick(HUGE[:25], HUGE, HUGE), ids=str)
def test_huge_exponents_round_as_the_oracle_rounds(fmt, mode):
    rounding = fp.find_rounding(mode)
    for text, size in [("1e999999999", 1000), ("1e-999999999", -1000)]:
        for sign in (1, -1):
            context = fp.Context(fmt, rounding=rounding)
            x = context.decimal(text if sign > 0 else f"-{text}")
            wanted = oracle.round_exact(sign * Fraction(10) ** size, fmt, rounding)
            assert (int(x.codes()), context.flags) == wanted, (text, sign)


def test_sr_keeps_what_a_tiny_text_leaves():
    """One pattern of random bits takes it up, if a digit below them counts at all."""
    for residual, code in (("truncate", 0), ("half", 0), ("even", 0)):
        context = fp.Context(
            fp.BINARY16, rounding=fp.SR(2, residual), bits=fp.Replay([np.array([3])])
        )
        assert int(context.decimal(["1e-999999999"]).codes()[0]) == code
        assert context.flags == fp.Flags.INEXACT | fp.Flags.UNDERFLOW


@pytest.mark.parametrize("tail", ["0" * 3000 + "1", "", "0" * 3000])
def test_digits_behind_a_midpoint_count_however_far_they_are(tail):
    """The middle of two numbers of binary16, of binary64, and the smallest one of binary64."""
    context = fp.Context(fp.BINARY16)
    assert context.decimal("1.00048828125" + tail).values == (1 + 2.0**-10 * tail.endswith("1"))
    middle = f"{2.0**-53:.53f}"[1:]
    assert decimal(f"1{middle}{tail}", native=True) == 1 + 2.0**-52 * tail.endswith("1")
    least = str(5**1075).zfill(1075)
    assert len(least.lstrip("0")) == 752
    assert decimal(f".{least}{tail}", native=True) == 5e-324 * tail.endswith("1")


def test_a_fraction_may_be_long():
    assert exact(f"{LONG}/{LONG}") == 1
    assert exact(f"1/{LONG}") == Fraction(1, 10**5000 - 1)


def test_exponents_of_any_length():
    assert [exponent(t) for t in ("7", "-7", "+7", "-0", "0" * 50 + "7")] == [7, -7, 7, 0, 7]
    assert (exponent("9" * 19), exponent("-" + "9" * 19)) == (10**18, -(10**18))
    assert exponent("-" + "0" * 30 + "5") == -5


NO_NUMBERS = [
    "", " ", ".", "e5", "1e", "1e+", "0x", "0x1p3", "abc", "1_", "_1", "1__0", "1e5_", "1/", "/2",
    "1/0", "1/00", "1/-3", "1.5/2", "1/2e3", "+-1", "--1", "+-inf", "infinit", "nan1", "1 2", "1,5",
    "\u0661", "1e\u0661", "1.5.2",
]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_number_is_told_what_is_allowed(text):
    with pytest.raises(ValueError, match=r"is no number; give digits as in .* 'inf' or 'nan'") as e:
        decimal(text)
    assert repr(text) in str(e.value)


def test_a_long_text_is_not_repeated_whole():
    with pytest.raises(ValueError, match=r"… \(6000 characters\) is no number") as error:
        decimal("x" * 6000)
    assert len(str(error.value)) < 200


def test_a_number_is_no_text():
    with pytest.raises(TypeError, match=r"text=0.1 is no string; give digits as in '0.1'"):
        decimal(0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["inf", "-Infinity", "+INF", " nan ", "-nan"])
def test_names_of_special_values(text):
    value = decimal(text)
    assert value == float(text) or math.isnan(value)
    assert math.copysign(1, value) == math.copysign(1, float(text))


# Numbers and arrays -----------------------------------------------------------------------------


def test_whole_numbers_keep_what_decides_their_rounding():
    for n in (2**53 + 1, 2**64 - 1, -(2**70) - 1, 10**400, -(10**400), True):
        assert scalar(n) == reference(Fraction(n))
    assert scalar(2**53 + 1, native=True) == 2.0**53
    assert scalar(10**400, native=True) == math.inf
    assert scalar(0.1) == 0.1


def test_arrays_of_whole_numbers_keep_it_too():
    wanted = [reference(Fraction(n)) for n in (2**53 + 1, -(2**62) - 1)]
    assert floats([2**53 + 1, -(2**62) - 1]).tolist() == wanted
    assert floats(np.array([2**53 + 1, -(2**62) - 1])).tolist() == wanted
    assert floats([2**53 + 1, 2**70 + 1, 0.5]).tolist() == [
        wanted[0],
        reference(Fraction(2**70 + 1)),
        0.5,
    ]
    assert floats([2**53 + 1], native=True).tolist() == [2.0**53]
    assert floats(np.array([2**53 + 1]), native=True).tolist() == [2.0**53]
    assert floats([[True, 2]]).tolist() == [[1.0, 2.0]]
    assert floats(np.array([True])).dtype == np.float64


def test_floats_of_any_storage_are_read_exactly():
    values = [0.5, -0.0, math.inf]
    for dtype in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
        read = floats(np.array(values, dtype))
        assert read.tolist() == values
        assert np.signbit(read).tolist() == [False, True, False]


@pytest.mark.parametrize(
    "values",
    [["1"], np.array([1j]), np.array([1.0], ">f4"), np.array([1], ">i4"), [None], [2**70, "1"],
     np.array([1.0], np.longdouble), [2**70, 1j]],
    ids=str,
)
def test_other_kinds_are_refused(values):
    with pytest.raises(TypeError, match=r"decimal strings go through ctx.decimal"):
        floats(values)
