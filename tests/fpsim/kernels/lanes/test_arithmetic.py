"""Lane operations of products against numpy and fractions (differential, corners)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fpsim.judge.oracle import decode, round_exact
from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes import arithmetic as a
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load, load_float, pointer, store
from fpsim.kernels.lanes.vectors import as_bits
from fpsim.kernels.status_register import HAS_STATUS
from fpsim.kernels.target import HAS_FMA, HAS_INEXACT_FLAG, HAS_QUIET_ADD
from fpsim.records.formats import BINARY32, BINARY64
from tests.fpsim.kernels.on_lanes import on_bits, on_floats

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def lanes(numbers, dtype):
    return np.resize(np.array(numbers, dtype), 16)


@DTYPES
def test_trunc_goes_toward_zero_and_keeps_the_sign(dtype):
    large = 2.0**23 - 0.5 if dtype == np.float32 else 2.0**52 - 0.5
    x = lanes([0.9, -0.9, 1.5, -2.5, -0.0, 0.0, large, -large, 3e38, -3e38, 2.0, -1.0], dtype)
    out = on_floats(a.trunc, x)
    assert np.array_equal(out, np.trunc(x).view(out.dtype))


@DTYPES
def test_to_whole_is_signed_and_goes_toward_zero(dtype):
    x = lanes([0.9, -0.9, 1.5, -2.5, -0.0, 2.0**30, -(2.0**31), 2.0**31 - 128, -7.0], dtype)
    out = on_floats(a.to_whole, x)
    assert out.view(f"i{x.itemsize}").tolist() == [int(v) for v in x]


@DTYPES
def test_to_word_is_unsigned(dtype):
    x = lanes([0.9, 1.5, 2.0**31, 2.0**31 + 256, 2.0**32 - 256, 0.0, 77.99], dtype)
    assert on_floats(a.to_word, x).tolist() == [int(v) for v in x]


def test_upper_words_stand_in_both_halves():
    pairs = np.arange(1, 9, dtype=np.uint64) << np.uint64(32) | np.uint64(0xFFFFFFFF)
    out = on_bits(a.upper_words, pairs)
    assert out.tolist() == [i << 32 | i for i in range(1, 9)]


#: Words around midpoints of 24 digits, with the top bit set and without.
WORDS = [0, 1, 2**24 + 1, 2**24 + 3, 2**25 - 1, 2**31, 2**31 + 128, 2**31 + 384, 2**32 - 128,
         2**32 - 129, 2**32 - 1, 2**31 - 64, 2**31 - 65]


def test_words_to_floats_are_nearest_even():
    words = lanes(WORDS, np.uint32)
    out = on_bits(lambda w: as_bits(a.word_to_float(w)), words).view(np.float32)
    for word, value in zip(words.tolist(), out, strict=True):
        assert Fraction(float(value)) == decode(round_exact(word, BINARY32)[0], BINARY32).value


@pytest.mark.skipif(not HAS_QUIET_ADD, reason="the processor has no such conversion")
def test_words_to_floats_are_cut():
    words = lanes(WORDS, np.uint32)
    out = on_bits(lambda w: as_bits(a.word_to_float_cut(w)), words).view(np.float32)
    assert [int(v) for v in out] == [w >> d << d for w in words.tolist()
                                     for d in [max(0, w.bit_length() - 24)]]


@pytest.mark.skipif(not HAS_QUIET_ADD, reason="the processor has no such conversion")
def test_signed_words_to_floats_are_cut():
    words = lanes([w >> 1 for w in WORDS], np.uint32)
    for signed in (words, (-words.view(np.int32)).view(np.uint32)):
        out = on_bits(lambda w: as_bits(a.whole_to_float_cut(w)), signed).view(np.float32)
        sizes = [int(abs(v)) for v in signed.view(np.int32).astype(int)]
        cut = [w >> d << d for w in sizes for d in [max(0, w.bit_length() - 24)]]
        assert [abs(int(v)) for v in out] == cut
        assert not np.any(out * signed.view(np.int32) < 0)


@pytest.mark.skipif(not HAS_QUIET_ADD, reason="the processor has no such addition")
def test_sums_are_rounded_down_and_up():
    x = np.float64([1, -1, 1, -1, 3, 0, 2.0**52, 1])
    y = np.float64([1e-30, 1e-30, -1e-30, -1e-30, 1e-30, 1e-30, 0.75, 2])
    for how, away in ((a.add_down, -np.inf), (a.add_up, np.inf)):
        out = on_floats(lambda u, v, how=how: as_bits(how(u, v)), x, y).view(np.float64)
        for u, v, got in zip(x, y, out, strict=True):
            exact, value = Fraction(u) + Fraction(v), Fraction(float(got))
            assert value <= exact if away < 0 else value >= exact
            beyond = Fraction(float(np.nextafter(got, -away)))
            assert value == exact or (beyond > exact if away < 0 else beyond < exact)


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_the_larger_of_signed_numbers(dtype):
    signed = np.dtype(dtype).str.replace("u", "i")
    ends = np.iinfo(signed)
    x = np.resize(np.array([0, -1, 5, ends.min, ends.max, -7, 3, 3], signed), 16)
    y = np.resize(np.array([-1, 0, 7, ends.max, ends.min, -8, 3, -3], signed), 16)
    out = on_bits(a.smax, x.view(dtype), y.view(dtype))
    assert out.view(signed).tolist() == np.maximum(x, y).tolist()


@pytest.mark.skipif(not HAS_FMA, reason="the processor has no fused multiply-add")
@pytest.mark.parametrize("fmt", [BINARY32, BINARY64], ids=str)
def test_a_fused_multiply_add_is_rounded_once(fmt):
    """The product is a midpoint or one digit beside one; the addend decides, or cancels it."""
    dtype, ulp = fmt.carrier, 2.0 ** (1 - fmt.precision)
    x = lanes([1 + ulp, 1 + ulp, 1 + ulp, 1 - ulp / 2, 1 + ulp, -1 - ulp, 3, 1], dtype)
    y = lanes([1 + ulp, 1 - ulp, 1 - ulp, 1 - ulp / 2, 1 + ulp, 1 + ulp, 1 / 3, ulp / 2], dtype)
    z = lanes([0, -1, 2.0**-100, ulp, -(1 + 2 * ulp), 1, -1, 1 + ulp], dtype)
    out = on_floats(a.fused, x, y, z).view(dtype)
    for u, v, w, value in zip(x, y, z, out, strict=True):
        exact = Fraction(float(u)) * Fraction(float(v)) + Fraction(float(w))
        assert Fraction(float(value)) == decode(round_exact(exact, fmt)[0], fmt).value


@compiled
def spread(x, index, out):
    store(out, 0, as_bits(a.spread_item(pointer(x), index)))
    return a.item(pointer(x), a.plus(a.again(index), 2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint32, np.uint64])
def test_an_item_is_spread_over_all_lanes(dtype):
    x = np.arange(10).astype(dtype) + 5
    out = np.zeros(64 // x.itemsize, f"u{x.itemsize}")
    assert spread(x, 3, out) == 10
    assert set(out.tolist()) == {int(x.view(out.dtype)[3])}


@formula
def added(quiet, x, y):
    if quiet:
        return as_bits(a.quiet_subtract(a.quiet_add(x, y), x))
    return as_bits((x + y) - x)


def adder(quiet):
    QUIET = quiet

    @compiled
    def loop(x, y, out):
        a.clear_inexact()
        none = load(out, 0)
        store(out, 0, added(QUIET, load_float(x, 0, none), load_float(y, 0, none)))
        return a.inexact()

    return loop


LOUD = adder(False)


@pytest.mark.skipif(not (HAS_INEXACT_FLAG and HAS_STATUS), reason="no such status register")
@DTYPES
@pytest.mark.parametrize("lane", [0, -1])
def test_the_flag_tells_of_an_inexact_lane_and_is_lowered_again(dtype, lane):
    n = 64 // np.dtype(dtype).itemsize
    x, y, out = np.ones(n, dtype), np.ones(n, dtype), np.zeros(n, f"u{64 // n}")
    assert not LOUD(x, y, out)
    y[lane] = 2.0**-60
    assert LOUD(x, y, out)
    y[lane] = 2.0**-20
    assert not LOUD(x, y, out)


@pytest.mark.skipif(not HAS_QUIET_ADD, reason="the processor has no such addition")
@DTYPES
def test_quiet_additions_are_the_same_and_leave_the_flag(dtype):
    n = 64 // np.dtype(dtype).itemsize
    half = 2.0 ** (-24 if dtype == np.float32 else -53)
    x = np.resize(np.array([1, 1 + 2 * half, -1, 3], dtype), n)
    y = np.resize(np.array([half, half, -half, 2.0**-60], dtype), n)
    outs = np.zeros((2, n), f"u{64 // n}")
    assert not adder(True)(x, y, outs[0])
    assert LOUD(x, y, outs[1])
    assert np.array_equal(*outs)
    assert outs.any()
