"""NaN, infinities, zero divisors and negative radicands under every policy (exhaustive, corners).

All pairs, or triples, of what is no ordinary number with ordinary ones, against the definition.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fpsim.elementwise.apply import apply
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.judge.oracle import convert, operate
from fpsim.judge.oracle.rounding import OracleSettings
from fpsim.kernels.elementwise.special import OPERATIONS
from fpsim.records.formats import BINARY16, E4M3FN, E5M2
from fpsim.records.settings import Settings

#: Zeros, a number, infinities, quiet and signalling NaN with payloads; both signs.
HALF = [0x0000, 0x3C00, 0x7C00, 0x7E00, 0x7E15, 0x7C01, 0x7DFF, 0x0001]
CODES = {
    BINARY16: [s | c for c in HALF for s in (0, 0x8000)],
    E5M2: [s | c for c in (0x00, 0x3C, 0x7C, 0x7D, 0x7E, 0x7F) for s in (0, 0x80)],
    E4M3FN: [s | c for c in (0x00, 0x38, 0x7E, 0x7F) for s in (0, 0x80)],
}
OPERANDS = {"sqrt": 1, "fma": 3}
POLICIES = [
    {}, {"nan": "x86"}, {"nan": "x86", "divide_by_zero": "nan"}, {"quiet_nan_raises": True},
    {"divide_by_zero": "nan"}, {"nan": "propagate_first"},
]


def check(operation, fmt, codes, policy):
    settings = Settings(fmt, **policy)
    values = [from_codes(np.array(c, fmt.code_dtype), fmt) for c in zip(*codes, strict=True)]
    flags = np.zeros(len(codes), np.uint8)
    out, raised = apply(operation, values, settings, element_flags=flags)
    oracle_settings = OracleSettings(overflow=settings.overflow, **policy)
    for at, code, flag in zip(codes, to_codes(out, fmt).tolist(), flags.tolist(), strict=True):
        expected = operate(operation, at, fmt, oracle_settings)
        assert (code, flag) == (expected[0], int(expected[1])), [hex(c) for c in at]
    assert raised == np.bitwise_or.reduce(flags)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("operation", OPERATIONS[1:])
def test_rules_of_binary16(operation, policy):
    codes = CODES[BINARY16]
    if operation == "fma":
        codes = [c for c in codes if c not in (0x7DFF, 0xFDFF, 0x0001, 0x8001)]
    check(operation, BINARY16, list(product(codes, repeat=OPERANDS.get(operation, 2))), policy)


@pytest.mark.parametrize("fmt", [E5M2, E4M3FN], ids=str)
@pytest.mark.parametrize("operation", ["add", "multiply", "divide", "fma"])
def test_rules_of_formats_without_signalling_nan_or_infinity(operation, fmt):
    check(operation, fmt, list(product(CODES[fmt], repeat=OPERANDS.get(operation, 2))), {})


@pytest.mark.parametrize("infinite", [None, "saturate", "nan"])
@pytest.mark.parametrize("fmt", [BINARY16, E4M3FN], ids=str)
def test_conversions_of_what_is_no_number(fmt, infinite):
    policy = {} if infinite is None else {"infinite_input": infinite}
    codes = np.array(CODES[BINARY16], np.uint16)
    values, flags = from_codes(codes, BINARY16), np.zeros(len(codes), np.uint8)
    settings = Settings(fmt, **policy)
    out, _ = apply("convert", (values,), settings, element_flags=flags)
    oracle_settings = OracleSettings(overflow=settings.overflow, **policy)
    for code, result, flag in zip(codes.tolist(), to_codes(out, fmt), flags.tolist(), strict=True):
        expected = convert(code, BINARY16, fmt, oracle_settings)
        assert (int(result), flag) == (expected[0], int(expected[1])), hex(code)


@pytest.mark.parametrize("operation", ["add", "divide", "fma"])
@pytest.mark.parametrize("place", [0, 15, 16, 31, 32, 40])
def test_one_special_lane_changes_no_other(operation, place):
    """The rare branch is taken for a vector; its other lanes keep result and flags."""
    x = np.full(41, 0.1, np.float16).astype(np.float32)
    y, z = np.full(41, 5.0, np.float32), np.full(41, 2.0**-12, np.float32)
    operands = (x, y, z)[: OPERANDS.get(operation, 2)]
    flags = np.zeros((2, 41), np.uint8)
    plain, _ = apply(operation, operands, Settings(BINARY16), element_flags=flags[0])
    y[place] = np.inf
    other, _ = apply(operation, operands, Settings(BINARY16), element_flags=flags[1])
    rest = np.arange(41) != place
    assert np.array_equal(plain[rest], other[rest])
    assert set(flags[:, rest].ravel()) == {1}
    assert (float(other[place]), int(flags[1, place])) == (
        0.0 if operation == "divide" else np.inf,
        0,
    )
