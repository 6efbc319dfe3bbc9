"""Formats as records: golden ranges (P1, P5, P5b), differential against finfo and ml_dtypes."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from fpsim.convenience import decode
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    BINARY64,
    CATALOGUE,
    E2M1FN,
    E2M3FN,
    E3M2FN,
    E4M3,
    E4M3FN,
    E5M2,
    E8M0,
    F143,
    F152,
    TF32,
    UE4M3,
    UE5M3,
    Format,
    ScaleFormat,
    find_format,
)

NAMED = [f for f in CATALOGUE.values() if isinstance(f, Format)]


@pytest.mark.source("OCP OFP8 1.0; OCP MX 1.0; Noune et al. 2022; IEEE 754-2019")
@pytest.mark.parametrize(
    ("fmt", "largest", "smallest_normal", "smallest_subnormal"),
    [
        (BINARY16, 65504, 2.0**-14, 2.0**-24),
        (E4M3, 240, 2.0**-6, 2.0**-9),
        (E4M3FN, 448, 2.0**-6, 2.0**-9),
        (E5M2, 57344, 2.0**-14, 2.0**-16),
        (F143, 240, 2.0**-7, 2.0**-10),
        (F152, 57344, 2.0**-15, 2.0**-17),
        (E2M1FN, 6, 1.0, 0.5),
        (E2M3FN, 7.5, 1.0, 0.125),
        (E3M2FN, 28, 0.25, 0.0625),
    ],
)
def test_published_ranges(
    fmt: Format, largest: float, smallest_normal: float, smallest_subnormal: float
) -> None:
    assert (fmt.max, fmt.min) == (largest, -largest)
    assert fmt.smallest_normal == fmt.tiny == smallest_normal
    assert fmt.smallest_subnormal == smallest_subnormal


@pytest.mark.source("X-04")
@pytest.mark.source("S4-07")
@pytest.mark.source("S4-01")
@pytest.mark.parametrize("fmt", [f for f in NAMED if f.storage is not None], ids=str)
def test_ranges_agree_with_finfo(fmt: Format) -> None:
    native = fmt in (BINARY16, BINARY32, BINARY64)
    info = np.finfo(fmt.packed) if native else ml_dtypes.finfo(fmt.packed)
    assert fmt.max == float(info.max)
    assert fmt.min == float(info.min)
    assert fmt.smallest_normal == float(info.smallest_normal)
    assert fmt.smallest_subnormal == float(info.smallest_subnormal)
    assert fmt.eps == float(info.eps)
    assert fmt.nmant == info.nmant


@pytest.mark.parametrize("fmt", NAMED, ids=str)
def test_carriers_hold_every_value(fmt: Format) -> None:
    info = np.finfo(fmt.carrier)
    assert fmt.max <= float(info.max)
    assert fmt.smallest_subnormal >= float(info.smallest_subnormal)
    assert fmt.precision <= info.nmant + 1
    assert fmt.carrier == (np.float64 if fmt is BINARY64 else np.float32)


def test_specials_say_what_a_format_has() -> None:
    has = {f.name: (f.has_infinity, f.has_nan, f.has_negative_zero, f.has_signalling_nan)
           for f in NAMED}
    assert has["binary16"] == has["bfloat16"] == has["tf32"] == (True, True, True, True)
    assert has["e5m2"] == has["e4m3"] == (True, True, True, False)
    assert has["e4m3fn"] == (False, True, True, False)
    assert has["f143"] == has["f152"] == (False, True, False, False)
    assert has["e2m1fn"] == has["e2m3fn"] == has["e3m2fn"] == (False, False, True, False)


def test_tf32_has_nineteen_bits_in_a_32_bit_word() -> None:
    assert (TF32.bits, TF32.n_codes, TF32.code_dtype) == (19, 1 << 19, np.uint32)


@pytest.mark.parametrize(("fmt", "most"), [(BINARY32, 27), (BINARY16, 32), (TF32, 32)], ids=str)
def test_limit_of_random_bits(fmt: Format, most: int) -> None:
    assert fmt.sr_bits_max == most


@pytest.mark.parametrize(
    ("x", "ulp"),
    [
        (1.0, 2**-10),
        (-1.999, 2**-10),
        (65504.0, 32),
        (0.0, 2**-24),
        (2**-14, 2**-24),
        (1e-7, 2**-24),
    ],
)
def test_ulp_is_the_distance_of_neighbours(x: float, ulp: float) -> None:
    assert BINARY16.ulp(x) == ulp


def test_ulp_refuses_what_is_not_finite() -> None:
    for x in (math.inf, math.nan):
        with pytest.raises(ValueError, match="has no ulp; give a finite number"):
            BINARY16.ulp(x)


# Custom formats ------------------------------------------------------------------------------


def test_custom_formats_reproduce_named_ones() -> None:
    for fmt in NAMED:
        if fmt is BINARY64:
            continue
        result = Format.custom(
            fmt.exponent_bits, fmt.precision, bias=fmt.bias, specials=fmt.specials, name=fmt.name
        )
        assert result == fmt
        assert (result.max, result.smallest_subnormal) == (fmt.max, fmt.smallest_subnormal)


def test_custom_default_bias_follows_the_family() -> None:
    assert Format.custom(4, 4).bias == 7
    assert Format.custom(4, 4, specials="fnuz").bias == F143.bias
    assert Format.custom(4, 4, specials="fn").max == E4M3FN.max


@pytest.mark.parametrize("changes", [{"precision": 1}, {"precision": 27}, {"exponent_bits": 1}])
def test_custom_refuses_sizes_outside_the_limits(changes: dict[str, int]) -> None:
    name, value = next(iter(changes.items()))
    with pytest.raises(ValueError, match=f"{name}={value} is out of range"):
        Format.custom(**({"exponent_bits": 5, "precision": 8} | changes))


def test_custom_refuses_what_products_would_leave() -> None:
    with pytest.raises(ValueError, match="products must stay inside binary64"):
        Format.custom(10, 8)
    assert Format.custom(9, 26).emax == 255
    with pytest.raises(ValueError, match="or another bias"):
        Format.custom(8, 8, bias=600)


@pytest.mark.parametrize("wrong", [5.0, "5", True, None])
def test_custom_refuses_wrong_kinds(wrong: object) -> None:
    with pytest.raises(TypeError, match="is not an integer"):
        Format.custom(wrong, 8)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [7.5, "7", True])
def test_custom_refuses_a_bias_that_is_no_integer(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"bias=.* is not an integer"):
        Format.custom(4, 4, bias=wrong)  # type: ignore[arg-type]


def test_custom_refuses_unknown_specials() -> None:
    with pytest.raises(ValueError, match="use one of ieee, fn, fnuz, extended, finite"):
        Format.custom(5, 8, specials="posit")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (("x", 8, 40, 127), "precision=40 is out of range"),
        (("x", 11, 53, 1023), "precision=53 is out of range"),
        (("x", 10, 8, 511), "use fewer exponent bits"),
        (("x", 5, 8, 15, "foo"), "specials='foo' is not known"),
    ],
)
def test_a_record_has_the_limits_of_custom(record: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Format(*record)  # type: ignore[arg-type]


# Catalogue -----------------------------------------------------------------------------------


def test_formats_are_found_by_name_and_alias() -> None:
    for name, fmt in CATALOGUE.items():
        assert find_format(name) is find_format(name.upper()) is find_format(fmt) is fmt
    assert find_format("half") is BINARY16
    assert find_format("bf16") is BFLOAT16
    assert find_format("e5m2fnuz") is F152


def test_a_misspelt_format_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"Did you mean 'bfloat16'\?"):
        find_format("bfloat61")
    with pytest.raises(TypeError, match="is not a Format"):
        find_format(16)  # type: ignore[arg-type]


@pytest.mark.source("OCP MX 1.0 §5.4")
def test_e8m0_has_powers_of_two_and_nan() -> None:
    for code in range(255):
        assert E8M0.encode(E8M0.decode(code)) == code
    assert math.isnan(E8M0.decode(255))
    assert (E8M0.decode(0), E8M0.decode(254)) == (2.0**-127, 2.0**127)


@pytest.mark.parametrize(
    ("x", "code"),
    [
        (1.5, 128), (1.4999, 127), (3.0, 129), (0.75, 127), (0.0, 255), (-1.0, 255),
        (math.inf, 255), (math.nan, 255), (1.5 * 2.0**127, 255), (1.49 * 2.0**127, 254),
        (2.0**-128, 0), (2.0**-1074, 0),
    ],
)
def test_e8m0_rounds_to_nearest_with_ties_up(x: float, code: int) -> None:
    assert E8M0.encode(x) == code


def test_e8m0_refuses_codes_it_has_not() -> None:
    with pytest.raises(ValueError, match="codes 0 to 255"):
        E8M0.decode(256)
    for wrong in (1.7, np.array([1.7]), "1", True):
        with pytest.raises(TypeError, match=r"code=.* is not an integer"):
            decode(wrong, E8M0)
    assert decode(np.array(126, np.uint8), E8M0) == decode(np.uint8([126]), E8M0)[0] == 0.5


@pytest.mark.parametrize("scale", [E8M0, UE4M3, UE5M3, ScaleFormat("e5m0", 5, 15)], ids=str)
def test_the_ends_of_a_scale_format_are_those_of_its_codes(scale):
    scales = [scale.decode(code) for code in range(scale.n_codes)]
    positive = [x for x in scales if x > 0]
    assert (scale.min, scale.max) == (min(positive), max(positive))
    assert math.isnan(scales[scale.nan_code])
    assert sum(map(math.isnan, scales)) == 1
