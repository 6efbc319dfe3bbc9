"""Codes and values of small formats against the definition (exhaustive), and around them (corners).

All codes of formats up to 8 bits, and of each field of the larger ones.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fpsim.elementwise.codes import from_codes, is_held, to_codes
from fpsim.judge.oracle import decode
from fpsim.kernels.elementwise.codes import CHECK, DECODE, ENCODE, Coding, codec
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    BINARY64,
    E2M1FN,
    E4M3FN,
    E5M2,
    F143,
    F152,
    TF32,
    Format,
)

SMALL = [E5M2, E4M3FN, F143, F152, E2M1FN]
LARGE = [BINARY16, BFLOAT16, TF32, BINARY32, BINARY64]
#: More digits than binary32 has: carried in lanes of 64 bits.
WIDE = Format.custom(9, 26, name="wide")


def codes_of(fmt):
    """All codes, or every field of exponents with the ends of its significands; both signs."""
    if fmt.bits <= 8:
        return np.arange(fmt.n_codes).astype(fmt.code_dtype)
    p = fmt.precision - 1
    digits = {0, 1, 2, (1 << p) - 1, 1 << (p - 1), (1 << (p - 1)) + 1, *(1 << i for i in range(p))}
    fields = range(0, 1 << fmt.exponent_bits, 1 if fmt.exponent_bits < 9 else 37)
    fields = {*fields, 1, (1 << fmt.exponent_bits) - 2, (1 << fmt.exponent_bits) - 1}
    body = [e << p | d for e in fields for d in digits]
    return np.array([s << (fmt.bits - 1) | b for b in body for s in (0, 1)], fmt.code_dtype)


@pytest.mark.parametrize("fmt", [*SMALL, *LARGE, WIDE], ids=str)
def test_values_are_those_of_the_definition_and_go_back(fmt):
    codes = codes_of(fmt)
    values = from_codes(codes, fmt)
    for code, value in zip(codes.tolist(), values, strict=True):
        datum = decode(code, fmt)
        if datum.kind == "finite":
            assert Fraction(float(value)) == datum.value, hex(code)
            assert np.signbit(value) == datum.sign, hex(code)
        else:
            assert np.isnan(value) if datum.kind == "nan" else np.isinf(value), hex(code)
            assert datum.kind == "nan" or np.signbit(value) == datum.sign
    assert np.array_equal(to_codes(values, fmt), codes)
    assert is_held(values, fmt).all()


@pytest.mark.parametrize("fmt", [*SMALL, BINARY16, BFLOAT16, TF32, WIDE], ids=str)
def test_neighbours_of_values_in_the_carrier_are_not_held(fmt):
    """One digit of the carrier more or less, the middle of two values, and what is too large."""
    values = from_codes(codes_of(fmt), fmt)
    finite = values[np.isfinite(values)]
    other = np.concatenate(
        [np.nextafter(finite, finite.dtype.type(to)) for to in (np.inf, -np.inf)]
    )
    zero = finite.dtype.type(0)
    other = np.append(other, [fmt.smallest_subnormal * 1.5, fmt.max * (1 + 2.0**-fmt.precision)])
    other = other[~np.isin(other, finite)].astype(finite.dtype)
    assert len(other) > len(finite)
    assert not is_held(other, fmt).any()
    assert is_held(np.array([zero, fmt.max, -fmt.max], finite.dtype), fmt).all()
    specials = np.array([-zero, np.inf, -np.inf, np.nan], finite.dtype)
    assert is_held(specials, fmt).tolist() == [
        fmt.has_negative_zero, fmt.has_infinity, fmt.has_infinity, fmt.has_nan,
    ]


#: E5M2 in binary32, from what the names of the constants promise.
CODING = Coding(
    drop=21, hidden=1 << 23, smallest=127 - 14, offset=(127 - 15) << 23, normal=(127 - 14) << 23,
    largest=0x47600000, nan_above=0x7F800000, infinity_held=0x7F800000, infinity_code=0x7C,
    nan_code=0x7C, payload=3, lost_payload=2, mark_cleared=2, mark=0x400001, sign_shift=24,
    zero_sign=0xFFFFFFFF, body=0x7F, first_normal=4, special=0x7C, special_bits=0x7F800000,
    quantum=(-16 << 23) & 0xFFFFFFFF, quantum_field=16, own_shift=0,
)


@pytest.mark.parametrize("n", [1, 7, 15, 16, 17, 33, 48])
def test_as_many_elements_as_there_are_and_none_behind(n):
    """Codes of E5M2 have the sign, five digits of exponent and two of fraction of binary16."""
    x = np.resize(np.float16([1.0, -1.5, 2.0**-16, 57344.0, -0.0, np.inf]), n)
    bits = x.astype(np.float32).view(np.uint32)
    codes, held = np.full(n + 16, 0xEE, np.uint8), np.full(n + 16, 7, np.uint8)
    constants = np.array(CODING, np.uint32)
    assert codec(CHECK)(bits, codes[:n], held[:n], constants) == 0
    assert codes.tolist() == (x.view(np.uint16) >> 8).tolist() + [0xEE] * 16
    assert held.tolist() == [1] * n + [7] * 16
    back = np.full(n + 16, 9, np.uint32)
    codec(DECODE)(codes[:n], back[:n], held, constants)
    assert back.tolist() == bits.tolist() + [9] * 16


@pytest.mark.parametrize("place", [0, 15, 16, 18])
def test_a_value_that_is_not_held_is_seen_in_every_place(place):
    x, constants = np.ones(19, np.float32), np.array(CODING, np.uint32)
    x[place] = 1.125
    codes, held = np.zeros(19, np.uint8), np.zeros(19, np.uint8)
    assert codec(ENCODE)(x.view(np.uint32), codes, held, constants) == 1
    assert not held.any()
    assert codec(CHECK)(x.view(np.uint32), codes, held, constants) == 1
    assert np.flatnonzero(held == 0).tolist() == [place]
