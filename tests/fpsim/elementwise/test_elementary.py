"""Elementary functions: exhaustive over 16-bit and FP8 formats, corners, differential, laws.

The judge is the platform's binary64 library where its last digits cannot matter, and mpmath with
500 bits everywhere else: near places where a rounding changes its mind.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest
import scipy.special

from fpsim import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    BINARY64,
    E4M3FN,
    E5M2,
    F143,
    F152,
    RNE,
    RTP,
    RTZ,
    SR,
    Context,
    Flags,
    FloatingPointTrap,
)
from fpsim.elementwise import elementary, enclosures, hard_cases
from fpsim.elementwise.codes import from_codes
from fpsim.elementwise.inputs import to_odd
from fpsim.judge.oracle import elementwise_word, round_exact
from fpsim.kernels.elementwise.enclosures import COMPILED, rounding_kernel
from ipu.machine import Device
from tests.tiers import pick


def function(name):
    """A method of contexts as a function of an Array."""
    return lambda x, out=None: getattr(x.context, name)(x, out)


exp, log, tanh, rsqrt = map(function, ("exp", "log", "tanh", "rsqrt"))


NAMES = [
    "exp", "expm1", "log", "log1p", "sinh", "cosh", "tanh", "sigmoid", "rsqrt", "erf", "sin", "cos",
]
NUMPY = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sigmoid": scipy.special.expit,
    "rsqrt": lambda x: 1 / np.sqrt(x), "erf": scipy.special.erf,
    "sin": np.sin, "cos": np.cos, "expm1": np.expm1, "log1p": np.log1p, "sinh": np.sinh,
    "cosh": np.cosh,
}
MPMATH = {
    "exp": mpmath.exp, "log": mpmath.log, "tanh": mpmath.tanh, "erf": mpmath.erf,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)), "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sin": mpmath.sin, "cos": mpmath.cos, "expm1": mpmath.expm1, "log1p": mpmath.log1p,
    "sinh": mpmath.sinh, "cosh": mpmath.cosh,
}
#: Where a function begins.
BEGIN = {"log": 0, "rsqrt": 0, "log1p": -1}


#: Where a function is 1 or -1 to more than 500 bits, or nearly so.
LIMITED = {
    "tanh": ((-np.inf, -40), (40, np.inf)), "sigmoid": ((40, np.inf),),
    "erf": ((-np.inf, -8), (8, np.inf)), "expm1": ((-np.inf, -40),),
}


@cache
def exactly(name: str, x: float) -> Fraction:
    """f(x) to 500 bits; where it differs from 1 by less than that, any number beside 1."""
    if name in LIMITED and any(low < x < high for low, high in LIMITED[name]):
        return Fraction(1 if x > 0 else -1) * (1 - Fraction(1, 1 << 64))
    with mpmath.workprec(500):
        value = MPMATH[name](mpmath.mpf(x))
        sign, man, exponent, _ = value._mpf_
    return (-1) ** sign * Fraction(int(man)) * Fraction(2) ** int(exponent)


def judge(name: str, x: np.ndarray, digits: int) -> np.ndarray:
    """Values with the same rounding as f(x), to at most that many digits."""
    with np.errstate(all="ignore"):
        values = NUMPY[name](x)
    bits, step = values.view(np.int64), 1 << (53 - digits)
    near = np.abs(((bits + step // 2) & (step - 1)) - step // 2) < 1 << 8
    if name in ("exp", "sigmoid"):  # beyond every format
        values = np.maximum(values, 2.0**-1000)
    values = np.clip(values, -(2.0**1000), 2.0**1000)
    near &= (np.abs(values) > 2.0**-1000) & (np.abs(values) < 2.0**1000)
    for i in np.flatnonzero(near):
        values[i] = to_odd(exactly(name, float(x[i])))
    return values


def defined(name: str, x: np.ndarray) -> np.ndarray:
    """Arguments for a function: magnitudes where it takes no other."""
    begin = BEGIN.get(name, -np.inf)
    x = np.abs(x) if begin == 0 else x
    return x[x > begin]


def arguments(fmt, name: str, codes) -> np.ndarray:
    x = from_codes(codes, fmt)
    x = x[np.isfinite(x)]
    return defined(name, x)


def compared(name: str, x, fmt, rounding=RNE):
    context = Context(fmt, rounding=rounding, seed=3)
    result = function(name)(context.wrap(x))
    other = Context(fmt, rounding=rounding, seed=3)
    digits = fmt.precision + 1 + other.core.settings.random_most
    expected = other.array(judge(name, x.astype(np.float64), digits))
    return result, expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "fmt", [BINARY16, BFLOAT16, E4M3FN, E5M2, F143, F152], ids=lambda f: f.name
)
def test_every_code_is_correctly_rounded(name, fmt):
    x = arguments(fmt, name, np.arange(0, fmt.n_codes, pick(13, 1, 1) if fmt.bits > 8 else 1))
    for rounding in pick((RNE,), (RNE, RTP, RTZ), (RNE, RTP, RTZ)):
        result, expected = compared(name, x, fmt, rounding)
        np.testing.assert_array_equal(result.values, expected.values)
        assert result.context.flags == expected.context.flags


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rounding", [RNE, RTP, RTZ, SR(), SR(13), SR(20, "even")], ids=str)
def test_binary32_is_correctly_rounded(name, rounding):
    """Values and flags, by a judge that shares no arithmetic with the core."""
    rng = np.random.default_rng(1)
    n = pick(25, 1_000, 20_000)
    x = np.concatenate([
        rng.standard_normal(n) * 10.0 ** rng.integers(-30, 3, n), rng.uniform(-9, 9, n),
        1 + rng.integers(-99, 99, n) * 2.0**-23, 2.0 ** rng.integers(-149, 8, n),
    ]).astype(np.float32)
    x = defined(name, x)
    context = Context(BINARY32, rounding=rounding, seed=3)
    result = function(name)(context.wrap(x)).codes()
    flags, digits = Flags.NONE, context.core.settings.random_most
    for i, (value, code) in enumerate(zip(x.tolist(), result.tolist(), strict=True)):
        word = elementwise_word(3, 0, i, digits) if digits else 0
        wanted, raised = round_exact(exactly(name, value), BINARY32, rounding, word=word)
        assert code == wanted, value.hex()
        flags |= raised
    assert context.flags == flags


@pytest.mark.parametrize("name", NAMES)
def test_enclosures_hold_the_function(name):
    rng = np.random.default_rng(2)
    n = pick(60, 3_000, 30_000)
    x = np.concatenate([
        rng.standard_normal(n) * 10.0 ** rng.integers(-40, 3, n), rng.uniform(-7, 7, n)
    ]).astype(np.float32).astype(np.float64)
    x = defined(name, x)
    x = x[np.abs(x) < (8 if name == "erf" else 40)]
    high, low, error = enclosures.FUNCTIONS[name](x)
    for i, value in enumerate(x):
        miss = exactly(name, float(value)) - Fraction(high[i]) - Fraction(low[i])
        assert abs(miss) <= error[i]


@pytest.mark.parametrize("name", ["exp", "sigmoid"])
@pytest.mark.parametrize("rounding", [RNE, RTP, RTZ, SR(), SR(13), SR(20, "even")], ids=str)
def test_far_below_every_format_no_digits_are_asked_for(name, rounding, monkeypatch):
    monkeypatch.setattr(hard_cases, "to_odd", lambda name, x: pytest.fail(f"{name}({x}) is asked"))
    x = -np.float32([701, 750, 6e4, 1e9, 1e35])
    result = function(name)(Context(BINARY32, rounding=rounding).wrap(x))
    expected = Context(BINARY32, rounding=rounding).array(np.full(x.shape, 2.0**-900))
    np.testing.assert_array_equal(result.values, expected.values)
    assert result.context.flags == expected.context.flags == Flags.UNDERFLOW | Flags.INEXACT


@pytest.mark.parametrize("name", NAMES)
def test_hard_cases_agree_with_the_enclosures(name, monkeypatch):
    """With an error of everything each element takes the long way."""
    x = arguments(BINARY16, name, np.arange(5, BINARY16.n_codes, 997))
    x = x[(np.abs(x) < 5) & (x != 0)]
    usual = function(name)(Context(BINARY16).wrap(x))
    short, compiled = enclosures.FUNCTIONS[name], elementary.rounding_kernel
    taken = []

    def nothing_is_decided(name):
        def loop(x, out, doubts, *rest):
            compiled(name)(x, out, doubts, *rest)
            out[:], doubts[:] = np.nan, x != 0
            return elementary.IN_DOUBT

        return loop

    monkeypatch.setattr(elementary, "_table_of", lambda *_: None)
    monkeypatch.setattr(elementary, "rounding_kernel", nothing_is_decided)
    monkeypatch.setitem(
        elementary.FUNCTIONS, name, lambda x: short(x)._replace(error=np.full_like(x, np.inf))
    )
    long = hard_cases.to_odd
    monkeypatch.setattr(hard_cases, "to_odd", lambda *a: taken.append(a) or long(*a))
    result = function(name)(Context(BINARY16).wrap(x))
    assert len(taken) >= len(x) - 2
    np.testing.assert_array_equal(result.values, usual.values)


@pytest.mark.parametrize(
    ("rounding", "digits"), [(RNE, 11), (RTP, 11), (SR(13), 24), (SR(13, "half"), 24), (SR(), 43)]
)
def test_places_where_a_rounding_changes_its_mind_are_looked_at_closely(
    rounding, digits, monkeypatch
):
    """1 + 2^-d is one of them for the d up to the last digit that the rounding looks at."""
    asked = []
    monkeypatch.setattr(elementary, "_table_of", lambda *_: None)
    monkeypatch.setattr(hard_cases, "to_odd", lambda name, x: asked.append(x) or 1.0)
    for d in range(1, 53):
        near = enclosures.Enclosure(*(np.array([v]) for v in (1 + 2.0**-d, 0.0, 2.0**-60)))
        monkeypatch.setitem(elementary.FUNCTIONS, "cosh", lambda x, near=near: near)
        asked.clear()
        function("cosh")(Context(BINARY16, rounding=rounding).array([0.5]))
        assert len(asked) == (d <= digits)


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("free", [8, 10, 29, 42])
def test_a_compiled_function_doubts_what_lies_near_those_places(name, free):
    """Places are multiples of so many free digits; the enclosure is what the kernel itself has."""
    if name == "exp" and free == 8:  # its enclosure is narrower than the others
        free = 4
    n, step = pick(2000, 20000, 200000) + 3, 1 << free
    x = defined(name, np.random.default_rng(free).standard_normal(n).astype(np.float32))
    out, doubts = np.empty(x.size), np.empty(x.size, np.uint8)
    in_doubt = rounding_kernel(name)(
        x, out, doubts, np.uint64(step // 2), ~np.uint64(step - 1), 0.0,
        float(BEGIN.get(name, -np.inf)), enclosures.table_of(name),
    )
    expected = []
    parts = zip(out, *enclosures.FUNCTIONS[name](x.astype(np.float64)), strict=True)
    for odd, high, low, error in parts:
        exact = Fraction(float(high)) + Fraction(float(low))
        assert odd == to_odd(exact)
        unit = Fraction(2) ** (free + np.frexp(high + low)[1].item() - 53)
        expected.append(abs(exact - round(exact / unit) * unit) < error)
    assert doubts.tolist() == expected
    assert in_doubt == elementary.IN_DOUBT * any(expected)
    assert any(expected) or free > 8


def test_what_has_no_enclosure_is_seen_and_told():
    for x in (np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45):
        for name in COMPILED:
            numbers = np.full(11, 0.5, np.float32)
            numbers[9] = x
            out, doubts = np.empty(11), np.empty(11, np.uint8)
            begin = float(BEGIN.get(name, -np.inf))
            in_doubt = rounding_kernel(name)(
                numbers, out, doubts, np.uint64(1 << 20), ~np.uint64((1 << 21) - 1),
                BINARY32.smallest_normal, begin, enclosures.table_of(name),
            )
            is_zero = np.isfinite(x)
            assert in_doubt == (not is_zero or name in ("log", "tanh", "erf"))
            assert not doubts.any()
            assert len(set(np.delete(out, 9).tolist())) == 1


EDGES = [
    ("exp", [0.0, -0.0, np.inf, -np.inf], [1.0, 1.0, np.inf, 0.0], Flags.NONE),
    ("log", [1.0, np.inf], [0.0, np.inf], Flags.NONE),
    ("log", [0.0, -0.0], [-np.inf, -np.inf], Flags.DIVBYZERO),
    ("log", [-1.0, -np.inf], [np.nan, np.nan], Flags.INVALID),
    ("tanh", [0.0, -0.0, np.inf, -np.inf], [0.0, -0.0, 1.0, -1.0], Flags.NONE),
    ("sigmoid", [0.0, -0.0, np.inf, -np.inf], [0.5, 0.5, 1.0, 0.0], Flags.NONE),
    ("rsqrt", [4.0, 0.0625, np.inf], [0.5, 4.0, 0.0], Flags.NONE),
    ("rsqrt", [0.0, -0.0], [np.inf, -np.inf], Flags.DIVBYZERO),
    ("rsqrt", [-4.0, -np.inf], [np.nan, np.nan], Flags.INVALID),
    ("erf", [0.0, -0.0, np.inf, -np.inf], [0.0, -0.0, 1.0, -1.0], Flags.NONE),
    ("expm1", [0.0, -0.0, np.inf, -np.inf], [0.0, -0.0, np.inf, -1.0], Flags.NONE),
    ("log1p", [0.0, -0.0, np.inf], [0.0, -0.0, np.inf], Flags.NONE),
    ("log1p", [-1.0], [-np.inf], Flags.DIVBYZERO),
    ("log1p", [-1.5, -np.inf], [np.nan, np.nan], Flags.INVALID),
    ("sinh", [0.0, -0.0, np.inf, -np.inf], [0.0, -0.0, np.inf, -np.inf], Flags.NONE),
    ("cosh", [0.0, -0.0, np.inf, -np.inf], [1.0, 1.0, np.inf, np.inf], Flags.NONE),
    ("sinh", [-100.0], [-np.inf], Flags.OVERFLOW | Flags.INEXACT),
    ("tanh", [np.nan], [np.nan], Flags.NONE),
    ("exp", [100.0], [np.inf], Flags.OVERFLOW | Flags.INEXACT),
    ("exp", [-100.0], [0.0], Flags.UNDERFLOW | Flags.INEXACT),
    ("tanh", [100.0], [1.0], Flags.INEXACT),
]


@pytest.mark.parametrize(("name", "x", "expected", "flags"), EDGES)
def test_edges(name, x, expected, flags):
    context = Context(BINARY16)
    result = function(name)(context.wrap(np.array(x, np.float32))).values
    np.testing.assert_array_equal(result, np.array(expected, np.float32))
    np.testing.assert_array_equal(np.signbit(result), np.signbit(np.array(expected)))
    assert context.flags == flags


def test_a_pole_has_the_value_of_a_division_by_zero():
    context = Context(BINARY16, divide_by_zero="nan", quiet_nan_raises=True)
    assert np.isnan(float(log(context.array(0.0))))
    assert context.flags == Flags.DIVBYZERO
    saturated = Context(BINARY16, overflow="saturate", divide_by_zero="infinity")
    assert float(log(saturated.array(0.0))) == -np.inf
    assert float(rsqrt(Context(E4M3FN, overflow="saturate").array(0.0))) == 448.0


def test_signalling_nan_is_invalid_and_policies_make_nan():
    context = Context(BINARY16)
    signalling = context.wrap(from_codes(np.array([0x7D00]), BINARY16))
    assert exp(signalling).codes() == [0x7E00]
    assert context.flags == Flags.INVALID
    assert log(Context(BINARY16, nan="x86").array([-1.0])).codes() == [0xFE00]
    first = Context(BINARY16, nan="propagate_first")
    assert exp(first.wrap(from_codes(np.array([0xFE01]), BINARY16))).codes() == [0xFE01]


def test_an_infinite_result_is_no_infinite_operand():
    context = Context(E5M2, infinite_input="nan")
    assert float(exp(context.wrap(np.float32([np.inf])))[0:1].values[0]) == np.inf


def test_flushed_operands_are_zeros():
    context = Context(BINARY32, subnormals="flush_both")
    tiny = context.wrap(np.float32([2.0**-149]))
    assert log(tiny).values.tolist() == [-np.inf]
    assert context.flags == Flags.DIVBYZERO
    context.clear_flags()
    assert exp(tiny).values.tolist() == [1.0]
    assert context.flags == Flags.NONE


def test_a_trap_publishes_nothing():
    context = Context(BINARY16, traps=Flags.DIVBYZERO, rounding=SR(), seed=1)
    out = context.zeros(2)
    with pytest.raises(FloatingPointTrap, match=r"log raised .*DIVBYZERO.* at \(1,\)"):
        log(context.wrap(np.float32([2.0, 0.0])), out)
    assert out.values.tolist() == [0.0, 0.0]
    assert context.operation == 0


def test_binary64_is_refused():
    with pytest.raises(TypeError, match="exp is not offered in binary64"):
        exp(Context(BINARY64).array(1.0))


def test_shapes_and_blocks_do_not_matter():
    x = np.random.default_rng(0).standard_normal((3, 7_000)).astype(np.float32)
    context = Context(BINARY32)
    result = tanh(context.wrap(x)).values
    assert result.shape == x.shape
    np.testing.assert_array_equal(result[:, ::1000], tanh(context.wrap(x[:, ::1000])).values)
    assert exp(context.zeros((0, 3))).shape == (0, 3)


def test_the_device_has_them_as_verbs():
    device = Device()
    x = device.from_host([0.5], BINARY16)
    of_the_host = {"sin", "cos", "expm1", "log1p", "sinh", "cosh"}
    for name in set(NAMES) - of_the_host:
        assert getattr(device, name)(x).values == function(name)(x).values
