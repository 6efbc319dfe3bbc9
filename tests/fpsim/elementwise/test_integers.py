"""Conversions to and from integers: differential (oracle), corners, exhaustive (8-bit formats)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.codes import from_codes, is_held, to_codes
from fpsim.elementwise.integers import (
    INTEGERS,
    integer_type,
    round_to_integral,
    to_binary64,
    to_integers,
    whole_format,
)
from fpsim.judge.oracle import from_integer, operate, round_exact, to_integer
from fpsim.judge.oracle.rounding import OracleSettings
from fpsim.records.settings import Settings

KINDS = {"i32": np.int32, "i64": np.int64, "ui32": np.uint32, "ui64": np.uint64}
INVALID, INEXACT = int(fp.Flags.INVALID), int(fp.Flags.INEXACT)


def corners(kind):
    """Powers of two and their neighbours, and the ends of the type."""
    info = np.iinfo(kind)
    sizes = {2**k + d for k in range(64) for d in (-2, -1, 0, 1, 2)}
    sizes |= {2**k + 2 ** (k - 53) + d for k in range(53, 64) for d in (-1, 0, 1)}
    both = {sign * n for n in sizes for sign in (1, -1)} | {int(info.min), int(info.max)}
    return sorted(n for n in both if info.min <= n <= info.max)


@pytest.mark.parametrize("kind", [np.int8, *KINDS.values()])
def test_integers_are_exact_up_to_53_digits_and_odd_beyond(kind):
    numbers = corners(kind)
    values = to_binary64(np.array(numbers, kind))
    codes = [round_exact(n, fp.BINARY64, fp.RTO)[0] for n in numbers]
    assert values.view(np.uint64).tolist() == codes


@pytest.mark.parametrize("fmt", [fp.BINARY32, fp.BINARY16, fp.E5M2], ids=str)
def test_a_later_rounding_is_that_of_the_integer_itself(fmt):
    numbers = corners(np.int64)
    for rounding in (fp.RNE, fp.RNA, fp.RTP):
        context = fp.Context(fmt, rounding=rounding)
        codes = context.array(np.array(numbers, np.int64)).codes().tolist()
        flags = fp.Flags.NONE
        for n, code in zip(numbers, codes, strict=True):
            wanted, raised = from_integer(n, fmt, OracleSettings(rounding))
            assert code == wanted, n
            flags |= raised
        assert context.flags == flags


def test_shapes_and_strides_of_integers_are_kept():
    x = np.arange(2**60, 2**60 + 24, dtype=np.uint64).reshape(4, 6)
    for view in (x, x.T, x[::2, ::3], x[1, 1], np.asarray(x[1, 1])[()]):
        view = np.asarray(view)
        values = to_binary64(view)
        assert values.shape == view.shape
        flat = [float(to_binary64(np.array([n]))[0]) for n in view.ravel()]
        assert values.ravel().tolist() == flat


@pytest.mark.parametrize(
    "fmt", [fp.BINARY16, fp.E4M3FN, fp.E2M1FN, fp.E2M3FN, fp.Format.custom(2, 12)], ids=str
)
def test_the_whole_format_holds_every_value_and_every_rounded_one(fmt):
    wide = whole_format(fmt)
    x = from_codes(np.arange(fmt.n_codes).astype(fmt.code_dtype), fmt)
    x = x[np.isfinite(x)].astype(wide.carrier)
    assert wide.precision == fmt.precision
    for values in (x, np.floor(x), np.ceil(x)):
        assert is_held(values + wide.carrier.type(0), wide).all()
    assert (wide is fmt) == (fmt.max >= 2 ** (fmt.precision - 1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversion_is_that_of_the_oracle(kind):
    dtype = np.dtype(KINDS[kind])
    for fmt in (fp.E5M2, fp.E4M3FN, fp.F143, fp.BFLOAT16):
        codes = np.arange(0, fmt.n_codes, 1 if fmt.bits == 8 else 41)
        for rounding in (fp.RNE, fp.RTP):
            context = fp.Context(fmt, rounding=rounding)
            x = context.wrap(from_codes(codes.astype(fmt.code_dtype), fmt))
            integral = context.round_to_integral(x).values
            numbers, flags = to_integers(x.values, integral, dtype)
            assert numbers.dtype == dtype
            for i, code in enumerate(codes.tolist()):
                wanted, raised = to_integer(code, fmt, kind, OracleSettings(rounding))
                assert (int(numbers[i]), int(flags[i])) == (wanted, int(raised)), hex(code)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_the_ends_of_a_type_are_sharp(dtype):
    """The last binary64 number inside fits; the first outside is invalid, and INVALID alone."""
    info = np.iinfo(dtype)
    beyond = float(info.max + 1)
    inside = np.nextafter(beyond, 0)
    below = np.nextafter(float(info.min), -np.inf) if info.min else -1.0
    x = np.array([inside, beyond, float(info.min), below, np.nan, np.inf, -np.inf, -0.0])
    numbers, flags = to_integers(x, np.trunc(x), dtype)
    invalid = INTEGERS[dtype]
    fractional = below != np.trunc(below)
    last = int(info.min) if fractional else invalid
    assert numbers.tolist() == [
        int(inside), invalid, int(info.min), last, invalid, invalid, invalid, 0,
    ]
    raised = [INEXACT if inside != np.trunc(inside) else 0, INVALID, 0]
    raised += [INEXACT if fractional else INVALID, INVALID, INVALID, INVALID, 0]
    assert flags.tolist() == raised


@pytest.mark.parametrize("name", ["bool", "float32", "complex64", "number", 3.5])
def test_another_type_is_refused(name):
    with pytest.raises(TypeError, match=r"int32.*int64.*uint32.*uint64"):
        integer_type(name)


def test_a_type_has_several_names():
    assert integer_type("uint32") == integer_type(np.uint32) == np.dtype("u4")


@pytest.mark.parametrize("subnormals", ["keep", "flush_results", "flush_both"])
@pytest.mark.parametrize(
    "fmt", [fp.E5M2, fp.Format.custom(4, 4, bias=-3), fp.Format.custom(4, 5, bias=1)], ids=str
)
def test_whole_numbers_that_are_subnormal_are_flushed(fmt, subnormals):
    codes = np.arange(fmt.n_codes)
    x = from_codes(codes.astype(fmt.code_dtype), fmt)
    for rounding in (fp.RNE, fp.RTN):
        settings = Settings(fmt, rounding, subnormals=subnormals)
        flags = np.zeros(x.shape, np.uint8)
        values, raised = round_to_integral("round_to_integral", [x], settings, element_flags=flags)
        assert raised == np.bitwise_or.reduce(flags)
        _, sticky = round_to_integral("round_to_integral", [x], settings)
        assert sticky == raised
        results = to_codes(values, fmt).tolist()
        judge = OracleSettings(rounding, subnormals=subnormals)
        for i, code in enumerate(codes.tolist()):
            wanted, expected_flags = operate("round_to_integral", (code,), fmt, judge)
            assert (results[i], int(flags[i])) == (wanted, int(expected_flags)), hex(code)
