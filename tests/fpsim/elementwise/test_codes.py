"""Codes: exhaustive round trips, differential against the oracle and ml_dtypes, golden patterns."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from fpsim.context import Context
from fpsim.convenience import decode
from fpsim.elementwise.codes import from_codes, is_held, pack, to_codes, unpack
from fpsim.judge import oracle
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    BINARY64,
    CATALOGUE,
    E4M3,
    E4M3FN,
    E5M2,
    E8M0,
    F143,
    TF32,
    Format,
)
from tests.tiers import pick

CUSTOMS = [
    Format.custom(6, 10),
    Format.custom(7, 2),
    Format.custom(3, 2),
    Format.custom(8, 6, bias=121, name="straddles binary32's subnormals"),
    Format.custom(5, 9, specials="fn"),
    Format.custom(4, 5, specials="fnuz"),
    Format.custom(2, 3, specials="finite"),
    Format.custom(9, 7, name="binary64 carrier"),
]
NAMED = [f for f in CATALOGUE.values() if isinstance(f, Format)]
SMALL = [f for f in [*NAMED, *CUSTOMS] if f.bits <= 19]
WIDE = [BINARY32, BINARY64, Format.custom(9, 26)]
by_name = pytest.mark.parametrize("fmt", SMALL, ids=str)


@by_name
def test_every_code_round_trips(fmt: Format) -> None:
    codes = np.arange(fmt.n_codes, dtype=fmt.code_dtype)
    values = from_codes(codes, fmt)
    assert values.dtype == fmt.carrier
    np.testing.assert_array_equal(to_codes(values, fmt), codes)
    np.testing.assert_array_equal(to_codes(unpack(pack(values, fmt), fmt), fmt), codes)


@by_name
def test_the_code_of_a_value_does_not_depend_on_its_neighbours(fmt: Format) -> None:
    """Vectors of zeros and normal numbers go another way than those that hold something else."""
    codes = np.arange(fmt.n_codes, dtype=fmt.code_dtype)
    values = from_codes(codes, fmt)
    one = to_codes(np.ones(1, fmt.carrier), fmt)
    lone = np.tile(one, (codes.size, 16))
    place = codes.astype(np.int64) % 16, np.arange(codes.size)
    lone[place[1], place[0]] = codes
    alone = from_codes(lone, fmt)
    bits = f"u{values.itemsize}"
    np.testing.assert_array_equal(alone[place[1], place[0]].view(bits), values.view(bits))
    assert (np.delete(alone.reshape(-1), place[1] * 16 + place[0]) == 1).all()
    np.testing.assert_array_equal(to_codes(alone, fmt), lone)


@by_name
def test_what_is_held_is_the_value_of_a_code(fmt: Format) -> None:
    """Beside normal numbers that are held; one digit of the carrier's makes most not held."""
    rng = np.random.default_rng(fmt.bits)
    codes = rng.integers(0, fmt.n_codes, 4096).astype(fmt.code_dtype)
    bits = f"u{fmt.carrier.itemsize}"
    values = from_codes(codes, fmt).view(bits)
    values[rng.random(4096) < 0.05] ^= 1
    every = from_codes(np.arange(fmt.n_codes, dtype=fmt.code_dtype), fmt).view(bits)
    x = values.view(fmt.carrier)
    expected = np.where(np.isnan(x), fmt.has_nan, np.isin(values, every))
    np.testing.assert_array_equal(is_held(x, fmt), expected)


@by_name
def test_values_are_those_of_the_definition(fmt: Format) -> None:
    codes = np.arange(0, fmt.n_codes, 1 if fmt.bits <= 9 else pick(61, 7, 1))
    for code, value in zip(codes.tolist(), from_codes(codes, fmt).tolist(), strict=True):
        assert describe(value) == meaning(oracle.decode(code, fmt)), hex(code)


def describe(value: float) -> tuple[str, bool, Fraction]:
    """Class, sign and magnitude of a carrier value."""
    negative = bool(np.signbit(value))
    if np.isnan(value):
        return "nan", negative, Fraction(0)
    if np.isinf(value):
        return "infinite", negative, Fraction(0)
    return "finite", negative, Fraction(abs(value))


def meaning(d: oracle.Datum) -> tuple[str, bool, Fraction]:
    return d.kind, bool(d.sign), d.magnitude


@pytest.mark.parametrize("fmt", WIDE, ids=str)
def test_sampled_codes_of_wide_formats_round_trip(fmt: Format) -> None:
    random = np.random.default_rng(1)
    codes = random.integers(0, fmt.n_codes - 1, 20_000, dtype=np.uint64, endpoint=True)
    edges = [k << (fmt.bits - s) for k in range(32) for s in range(5, fmt.bits + 1)]
    near = {(e + d) % fmt.n_codes for e in edges for d in (-1, 0, 1)}
    codes = np.append(codes, np.array(sorted(near), np.uint64)).astype(fmt.code_dtype)
    values = from_codes(codes, fmt)
    np.testing.assert_array_equal(to_codes(values, fmt), codes)
    for code, value in zip(codes[::97].tolist(), values[::97].tolist(), strict=True):
        assert describe(value) == meaning(oracle.decode(code, fmt)), hex(code)


@pytest.mark.parametrize(
    "fmt", [f for f in NAMED if f.storage is not None and f.bits < 64], ids=str
)
def test_storage_types_hold_the_same_numbers(fmt: Format) -> None:
    n = min(fmt.n_codes, 1 << 16)
    codes = (np.arange(n, dtype=np.uint64) * (fmt.n_codes // n)).astype(fmt.code_dtype)
    stored = codes.view(fmt.packed)
    assert stored.dtype == fmt.storage
    with np.errstate(invalid="ignore"):
        theirs = stored.astype(np.float64)
        ours = from_codes(codes, fmt).astype(np.float64)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("fmt", "code", "carrier"),
    [
        (BINARY16, 0x7E00, 0x7FC00000),
        (BINARY16, 0x7D01, 0x7FA02000),
        (BFLOAT16, 0xFF81, 0xFF810000),
        (TF32, 0x3FC01, 0x7F802000),
        (E4M3FN, 0x7F, 0x7FC00000),
        (E4M3FN, 0xFF, 0xFFC00000),
        (F143, 0x80, 0x7FC00000),
        (E5M2, 0x7E, 0x7FC00000),
        (E5M2, 0x7F, 0x7FE00000),
        (E5M2, 0x7D, 0x7FE00001),
        (E4M3, 0xF9, 0xFFD00001),
    ],
)
def test_nan_payloads_are_carried_top_aligned(fmt: Format, code: int, carrier: int) -> None:
    value = from_codes([code], fmt)
    assert hex(value.view(np.uint32)[0]) == hex(carrier)
    assert to_codes(value, fmt)[0] == code


def test_a_payload_that_does_not_fit_leaves_a_quiet_nan() -> None:
    low = np.array([0x7F800001], np.uint32).view(np.float32)
    assert to_codes(low, BINARY16)[0] == 0x7E00


def test_fnuz_has_one_zero() -> None:
    zeros = np.float32([-0.0, 0.0])
    assert to_codes(zeros, F143).tolist() == [0, 0]
    assert is_held(zeros, F143).tolist() == [False, True]
    with pytest.raises(ValueError, match="not all in f143"):
        Context(F143).wrap(zeros)


def test_a_subnormal_that_is_read_as_zero_has_the_sign_that_zero_has() -> None:
    context = Context(F143, subnormals="flush_both")
    tiny = context.wrap(np.float32([-F143.smallest_subnormal]))
    for result in (context.maximum(tiny, -1.0), context.fmax(tiny, tiny), context.fmod(tiny, 1.0)):
        assert not np.signbit(result.values).any()


@pytest.mark.parametrize(
    ("fmt", "value"),
    [
        (BINARY16, 65520.0),
        (BINARY16, 2.0**-25),
        (BINARY16, 1 + 2.0**-11),
        (BINARY16, 2.0**100),
        (E4M3FN, 480.0),
        (E4M3FN, np.inf),
        (F143, -np.inf),
        (CATALOGUE["e2m1fn"], np.nan),
        (CATALOGUE["e2m1fn"], 5.0),
        (CATALOGUE["e2m1fn"], 2.0**-140),
    ],
)
def test_values_outside_the_format_are_refused(fmt: Format, value: float) -> None:
    array = np.full((), value, np.float32)
    assert not is_held(array, fmt)
    with pytest.raises(ValueError, match=f"no value of {fmt.name}; round first"):
        to_codes(array, fmt)


def test_exactly_the_values_of_binary16_are_held() -> None:
    every = np.arange(0, 1 << 32, pick(9973, 499, 61), dtype=np.uint32).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        through = every.astype(np.float16).astype(np.float32)
    expected = (through == every) | np.isnan(every)
    np.testing.assert_array_equal(is_held(every, BINARY16), expected)


def test_shapes_survive() -> None:
    for shape in ((), (0,), (2, 3), (3, 1, 2)):
        codes = np.full(shape, 0x3C00, np.uint16)
        values = from_codes(codes, BINARY16)
        assert values.shape == shape == to_codes(values, BINARY16).shape
        assert pack(values, BINARY16).shape == shape
    strided = from_codes(np.arange(12, dtype=np.uint16).reshape(3, 4), BINARY16)[:, ::2].T
    np.testing.assert_array_equal(to_codes(strided, BINARY16), [[0, 4, 8], [2, 6, 10]])


def test_wrong_kinds_are_refused() -> None:
    with pytest.raises(TypeError, match="carried in float32"):
        to_codes(np.float64([1.0]), BINARY16)
    with pytest.raises(TypeError, match="give integers"):
        from_codes([1.0], BINARY16)
    with pytest.raises(ValueError, match="codes 0 to 0xffff"):
        from_codes([0x10000], BINARY16)
    with pytest.raises(ValueError, match="out of range"):
        from_codes([-1], BINARY16)
    with pytest.raises(TypeError, match="stored as bfloat16"):
        unpack(np.float16([1.0]), BFLOAT16)


def test_scales_decode_elementwise() -> None:
    assert decode(254, E8M0) == 2.0**127
    np.testing.assert_array_equal(decode(np.array([0, 127]), E8M0), [2.0**-127, 1.0])
    theirs = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    np.testing.assert_array_equal(decode(np.arange(256), E8M0), theirs)
