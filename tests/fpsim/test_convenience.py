"""Rounding, encoding and decoding without a Context: exhaustive (codes), differential, refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fpsim as fp
from fpsim import decode, encode, round_to
from fpsim.judge.oracle import elementwise_R
from fpsim.judge.oracle.rounding import decode as exact_value
from tests.tiers import reaches

FORMATS = [fp.E4M3FN, fp.E5M2, fp.F143, fp.E2M1FN, fp.E3M2FN, fp.BINARY16]


def numbers():
    rng = np.random.default_rng(1)
    return np.float32(rng.standard_normal(400) * 2.0 ** rng.integers(-20, 12, 400))


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_every_code_is_decoded_and_encoded_again(fmt):
    codes = np.arange(0, fmt.n_codes, 1 if fmt.bits <= 8 else 7)
    values = decode(codes, fmt)
    for code, value in zip(codes.tolist(), values.tolist(), strict=True):
        datum = exact_value(code, fmt)
        assert (datum.kind == "nan") == np.isnan(value)
        if datum.kind == "finite":
            assert value == datum.value
            assert np.signbit(value) == datum.sign
            assert encode(value, fmt) == code
        assert np.array_equal(decode(code, fmt), value, equal_nan=True)
    numeric = ~np.isnan(values)
    assert encode(values, fmt)[numeric].tolist() == codes[numeric].tolist()


def test_encoding_rounds_once_by_the_mode():
    x = numbers()
    np.testing.assert_array_equal(encode(x, fp.BINARY16), x.astype(np.float16).view(np.uint16))
    brain = x.astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(encode(x, fp.BFLOAT16), brain)
    assert [encode(0.1, fp.BINARY16, mode) for mode in (fp.RTZ, fp.RTP)] == [0x2E66, 0x2E67]
    assert type(encode(1.0, fp.BINARY16)) is int
    assert type(decode(0x3C00, fp.BINARY16)) is float


def test_scales_are_powers_of_two():
    powers = 2.0 ** np.arange(-127, 128)
    codes = encode(powers.reshape(5, 51), fp.E8M0)
    assert codes.dtype == np.uint8
    assert codes.reshape(-1).tolist() == list(range(255))
    np.testing.assert_array_equal(decode(codes, fp.E8M0), powers.reshape(5, 51))
    assert (encode(0.5, fp.E8M0), decode(np.uint8(126), fp.E8M0)) == (126, 0.5)


POLICIES = [
    {}, {"overflow": "saturate"}, {"subnormals": "flush_results"}, {"infinite_input": "nan"},
    {"nan": "propagate_first"},
]
#: In the quick tier every mode, and every policy to nearest: flushing ones have their own kernels.
CASES = [
    (mode, policy)
    for mode in (fp.RNE, fp.RTP, "RTZ")
    for policy in POLICIES
    if reaches("full") or mode == fp.RNE or not policy
]


@pytest.mark.parametrize(("mode", "policy"), CASES, ids=str)
def test_rounding_is_that_of_a_context(mode, policy):
    x = np.concatenate([numbers(), np.float32([np.inf, -np.nan, -0.0])])
    wanted = fp.Context(fp.BINARY16, rounding=mode, **policy).array(x).values
    assert round_to(x, fp.BINARY16, mode, **policy).tobytes() == wanted.tobytes()


def test_a_number_gives_a_number_and_an_array_an_array():
    assert type(round_to(0.1, fp.BINARY16)) is float
    assert round_to(0.1, fp.BINARY16) == float(np.float16(0.1))
    assert round_to([[0.1]], fp.BINARY16).shape == (1, 1)
    assert round_to([0.1], fp.BINARY64).dtype == np.float64
    out = np.zeros((), np.float32)
    assert round_to(0.1, fp.BINARY16, out=out) is out
    assert out == np.float32(np.float16(0.1))


def test_the_bits_of_a_seed_are_those_of_operation_0():
    x = np.full(100, 1 + 3 * 2.0**-13, np.float32)  # a residual of 3/8 of an ulp
    rounded = round_to(x, fp.BINARY16, fp.SR(3), seed=5)
    ups = [elementwise_R(5, 0, i, 3) + 3 >= 8 for i in range(100)]
    assert (rounded > 1).tolist() == ups
    assert 10 < sum(ups) < 90
    np.testing.assert_array_equal(rounded, round_to(x, fp.BINARY16, fp.SR(3), seed=5))
    assert (rounded != round_to(x, fp.BINARY16, fp.SR(3), seed=6)).any()


def test_given_bits_decide_each_element():
    x = np.full(8, 1 + 3 * 2.0**-13, np.float32)
    rounded = round_to(x, fp.BINARY16, fp.SR(3), random=np.arange(8))
    assert (rounded > 1).tolist() == [False] * 5 + [True] * 3


@pytest.mark.parametrize(
    ("choice", "kind", "message"),
    [
        ({"random": [0, 1]}, ValueError, "has no bits"),
        ({"rounding": fp.SR(3), "random": [8, 0]}, ValueError, r"2\*\*3 - 1"),
        ({"rounding": fp.SR(3), "random": [0]}, ValueError, "shape"),
        ({"rounding": "up"}, ValueError, "not a Rounding"),
        ({"seed": -1}, ValueError, "seed=-1"),
        ({"overflow": "wrap"}, ValueError, "overflow='wrap'"),
        ({"out": np.zeros(2)}, TypeError, "dtype"),
        ({"out": np.zeros(3, np.float32)}, ValueError, "shape"),
    ],
    ids=str,
)
def test_unsuitable_choices_are_refused(choice, kind, message):
    with pytest.raises(kind, match=message):
        round_to(np.float32([1.0, 2.0]), fp.BINARY16, **choice)
