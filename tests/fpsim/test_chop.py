"""chop.m's rounding and MATLAB's random numbers: **differential** (the core, exact fractions, and
pychop where it is installed), **corners** that chop.m's text fixes, **golden** numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim.chop import Chop, MatlabRandom, matlab_rand

MODES = {1: "RNE", 2: "RTP", 3: "RTN", 4: "RTZ"}
FORMATS = {"h": "binary16", "b": "bfloat16", "q52": "e5m2", "s": "binary32"}


def numbers(n: int = 1500) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.concatenate([
        rng.standard_normal(n) * 2.0 ** rng.integers(-170, 170, n),
        rng.standard_normal(n) * 2.0 ** rng.integers(-30, 20, n),
        [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 65520.0, 65519.0, 2.0**-24, 3 * 2.0**-16],
    ])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FORMATS)
def test_it_is_the_cores_rounding_but_below_the_smallest_number(name: str, mode: int) -> None:
    x = numbers()
    chop = Chop(format=name, subnormal=1, round=mode)
    expected = fp.round_to(x, FORMATS[name], MODES[mode]).astype(np.float64) + 0.0
    same = (chop(x) == expected) | np.isnan(expected)
    assert same[(np.abs(x) >= chop.xmins) | (x == 0)].all()


@pytest.mark.parametrize("explim", [0, 1])
@pytest.mark.parametrize("subnormal", [0, 1])
@pytest.mark.parametrize("mode", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["q43", "q52", "h", "b", "s"])
def test_it_is_pychop(name: str, mode: int, subnormal: int, explim: int) -> None:
    pychop = pytest.importorskip("pychop.np.float_point")
    if (name, mode) == ("s", 1):
        pytest.skip("pychop takes no more than 25 digits to nearest")
    x = numbers()[:-1]
    with np.errstate(all="ignore"):
        theirs = pychop.Chop_(name, subnormal=subnormal, rmode=mode, explim=explim)(x)
    ours = Chop(format=name, subnormal=subnormal, round=mode, explim=explim)(x)
    assert ((ours == theirs) | np.isnan(theirs)).all()


def up_by_the_text(x: float, t: int, random: float, mode: int) -> float:
    """roundit.m on one normal number, in fractions."""
    e = math.frexp(abs(x))[1] - 1
    scaled = Fraction(abs(x)) / Fraction(2) ** (e - t + 1)
    floor = scaled.numerator // scaled.denominator
    goes = Fraction(random) <= (scaled - floor if mode == 5 else Fraction(1, 2))
    return math.copysign(float((floor + goes) * Fraction(2) ** (e - t + 1)), x)


@pytest.mark.parametrize("mode", [5, 6])
def test_stochastic_roundings_take_matlabs_numbers_by_columns(mode: int) -> None:
    """Only numbers that change take one."""
    x = np.random.default_rng(2).standard_normal((7, 5)) + 2
    x[2] = 1.5
    result = Chop(format="h", round=mode, random=MatlabRandom(9))(x)
    random = iter(MatlabRandom(9).rand(30, 1).ravel().tolist())
    for j in range(5):
        for i in range(7):
            wanted = 1.5 if i == 2 else up_by_the_text(x[i, j], 11, next(random), mode)
            assert result[i, j] == wanted


def test_the_ends_of_the_range_are_chops() -> None:
    least, smallest = 2.0**-14, 2.0**-24
    plain, none = Chop(format="h"), Chop(format="h", subnormal=0)
    # Magnitudes below the smallest number are rounded to t digits first.
    assert plain([smallest / 2 * (1 + 2.0**-30), smallest * 0.51, smallest / 2]).tolist() == [
        0.0, smallest, 0.0,
    ]
    assert none([least / 2, least * 0.49, -least * 0.75]).tolist() == [least, 0.0, -least]
    old = Chop(format="h", subnormal=0, release="2019")
    assert old([least * 0.75, least, -1e-9]).tolist() == [0.0, least, 0.0]
    big = [65519.9, 65520.0, -1e6, np.inf]
    assert plain(big).tolist() == [65504.0, np.inf, -np.inf, np.inf]
    assert Chop(round=4)(big).tolist() == [65504.0, 65504.0, -65504.0, np.inf]
    assert Chop(round=2)(big).tolist() == [np.inf, np.inf, -65504.0, np.inf]
    assert Chop(round=3)(big).tolist() == [65504.0, 65504.0, -np.inf, np.inf]
    assert Chop(round=5)([1e6, -1e6, 1e-12]).tolist() == [65504.0, -65504.0, 0.0]
    assert Chop(round=6)([1e6, -1e6]).tolist() == [np.inf, -np.inf]
    assert Chop(round=2, subnormal=0)([1e-30, -1e-30]).tolist() == [least, 0.0]
    assert Chop(explim=0)([1e300, 1e-300, 5e-324]).tolist() == [
        chopped(v, 11) for v in (1e300, 1e-300, 5e-324)
    ]
    assert not np.signbit(plain([-0.0, -1e-30])).any()
    assert (Chop(format="b").subnormal, plain.subnormal, plain.u) == (0, 1, 2.0**-11)


def chopped(x: float, t: int) -> float:
    e = math.frexp(x)[1]
    return math.ldexp(round(Fraction(x) / Fraction(2) ** (e - t)), e - t)


@pytest.mark.parametrize("name", ["q43", "q52", "h", "b", "s"])
def test_halves_of_subnormal_numbers_go_to_the_even_one(name: str) -> None:
    chop = Chop(name, subnormal=1)
    odd = np.arange(3, 33, 2)  # halves, from 1.5 of the smallest number on
    for sign in (1, -1):
        even = [sign * float(round(Fraction(int(n), 2))) for n in odd]
        np.testing.assert_array_equal(chop(sign * odd * chop.xmins / 2) / chop.xmins, even)


@pytest.mark.parametrize("options", [{"round": 4, "release": "2019"}, {"round": 6}])
def test_the_boundary_of_the_largest_exponent_is_finite(options: dict[str, object]) -> None:
    chop = Chop("c", params=(2, 1023), **options)  # type: ignore[arg-type]
    below = np.nextafter(1.75 * 2.0**1023, 0)
    assert chop(1.75 * 2.0**1023) == np.inf
    assert np.isfinite(chop(1.5 * 2.0**1023))
    if chop.round == 4:
        assert chop(below) == 1.5 * 2.0**1023


def test_custom_formats_types_and_shapes() -> None:
    tf32 = Chop(format="c", params=(11, 127))
    x = numbers()[:2000].reshape(40, 50)
    inside = np.abs(x) >= 2.0**-126
    expected = fp.round_to(x, "tf32").astype(np.float64)
    assert np.array_equal(tf32(x)[inside], expected[inside])
    single = Chop()(np.float32([[0.1, 0.2]]))
    assert (single.dtype, single.shape) == (np.float32, (1, 2))
    assert Chop()(0.1).shape == ()
    assert Chop()(np.zeros((0, 3))).shape == (0, 3)
    double = Chop(format="d", round=5)
    assert np.array_equal(double(x), x + 0.0)


def test_flips_change_one_digit_of_a_share() -> None:
    x = np.linspace(1, 2, 1000, endpoint=False)
    flipped = Chop(flip=1, p=0.25, random=MatlabRandom(4))(x)
    plain = Chop()(x)
    digits = np.abs(flipped - plain) * 2.0**10
    changed = digits != 0
    assert 200 < changed.sum() < 300
    assert set(np.log2(digits[changed]).tolist()) == set(map(float, range(10)))
    assert np.array_equal(Chop(flip=1, p=0.0)(x), plain)
    with pytest.raises(ValueError, match="flips no bit"):
        Chop(flip=1)([np.inf])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "e"}, "format='e' is not known"), ({"round": 7}, "round=7 is not an option"),
        ({"subnormal": 2}, "subnormal=2"), ({"explim": 3}, "explim=3"), ({"flip": 2}, "flip=2"),
        ({"format": "c"}, "with params="), ({"format": "c", "params": (26, 10)}, "t from 2 to 25"),
        ({"release": "2020"}, "use current or 2019"), ({"format": "c", "params": 3}, "params=3"),
        ({"format": "c", "params": (11.5, 15)}, "params="),
        ({"params": (11, 15)}, "for format='c'"),
        ({"flip": 1, "p": 2}, "p=2 is no probability"), ({"p": "a"}, "p='a' is no probability"),
        ({"round": 1.0}, "round=1.0"),
    ],
)
def test_options_that_chop_does_not_know_are_refused(options, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        Chop(**options)
    with pytest.raises(TypeError, match="real arrays"):
        Chop()(np.array([1j]))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: Chop(randfunc=3), TypeError, "randfunc=3"),
        (lambda: Chop(random=np.random.default_rng()), TypeError, "is no MatlabRandom"),
        (lambda: Chop()(np.ma.masked_array([1.0])), TypeError, "masked array"),
        (lambda: Chop()([[1, 2], [3]]), ValueError, "equal length"),
        (lambda: Chop(round=5, randfunc=lambda n: [0.5] * 2)([0.1, 0.2, 0.3]), ValueError,
         "gave 2 numbers"),
    ],
)
def test_what_is_no_array_and_no_function_is_refused(call, kind, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.source("MATLAB documentation of rng: rng(1); rand is 0.4170")
def test_matlabs_uniform_numbers() -> None:
    assert matlab_rand(1, 2, 2).round(4).tolist() == [[0.417, 0.0001], [0.7203, 0.3023]]
    stream = MatlabRandom(1)
    assert np.array_equal(stream.rand(2, 2), matlab_rand(1, 2, 2))
    assert np.array_equal(stream.rand(3, 1).ravel(), matlab_rand(1, 7, 1).ravel()[4:])
    with pytest.raises(NotImplementedError, match="save the matrix in MATLAB"):
        stream.randn(2)
    with pytest.raises(ValueError, match="no stream that is known"):
        matlab_rand(2**32, 1)


@pytest.mark.source("MathWorks, page on rand: rng default; rand(1, 5)")
def test_the_seed_zero_is_the_generators_own() -> None:
    assert matlab_rand(0, 1, 5).round(4).tolist() == [[0.8147, 0.9058, 0.1270, 0.9134, 0.6324]]
    assert (matlab_rand(0, 3) == matlab_rand(5489, 3)).all()
    assert (matlab_rand(np.int64(7), 2) == matlab_rand(7, 2)).all()


def test_whole_numbers_have_the_ends_that_randi_takes() -> None:
    values = MatlabRandom(3).randi((-2, 5), 1000, 1)
    assert (values.min(), values.max()) == (-2, 5)
    assert (MatlabRandom(3).randi(8, 1000, 1) == values + 3).all()
    assert MatlabRandom(3).randi([4, 4], 2).tolist() == [[4, 4], [4, 4]]
    assert MatlabRandom(1).rand(-1, 3).shape == (0, 3)
    assert MatlabRandom(1).rand(2, 3, 4).shape == (2, 3, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: r.rand(2.5), "the side 2.5"), (lambda r: r.rand("a"), "the side 'a'"),
        (lambda r: r.rand(True), "the side True"), (lambda r: r.rand(10**9), "this machine has"),
        (lambda r: r.randi(0, 2), "largest=0"), (lambda r: r.randi(2.5, 2), "largest=2.5"),
        (lambda r: r.randi((5, 1), 2), "two in order"), (lambda r: r.randi((1, 2, 3)), "no range"),
        (lambda r: r.randi(2**60), "beyond"), (lambda r: MatlabRandom(-1), "seed=-1"),
        (lambda r: MatlabRandom(1.0), "seed=1.0"),
    ],
)
def test_bad_numbers_are_refused_and_the_stream_stays(call, message: str) -> None:
    random = MatlabRandom(4)
    with pytest.raises(ValueError, match=message):
        call(random)
    assert random.rand(1, 1) == matlab_rand(4, 1, 1)
