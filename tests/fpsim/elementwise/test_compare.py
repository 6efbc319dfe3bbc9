"""Relations, extremes and sign operations: exhaustive (pairs of a 5-bit format), corners."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.elementwise.compare import SIGNALLING, compare, extreme, is_signalling, with_sign
from fpsim.judge.oracle import operate
from fpsim.judge.oracle.rounding import OracleSettings
from fpsim.records.settings import Settings

#: Five bits with infinities, quiet and signalling NaNs and subnormals of both signs.
SMALL = fp.Format.custom(2, 3)
#: Each relation in terms of those that the oracle defines: name, operands exchanged, negated.
BY_DEFINITION = {
    "equal": ("equal", False, False),
    "not_equal": ("equal", False, True),
    "less": ("less", False, False),
    "less_equal": ("less_equal", False, False),
    "greater": ("less", True, False),
    "greater_equal": ("less_equal", True, False),
}
INVALID = int(fp.Flags.INVALID)


def all_pairs(fmt):
    codes = np.arange(fmt.n_codes)
    x, y = np.meshgrid(codes, codes, indexing="ij")
    return [c.ravel().astype(fmt.code_dtype) for c in (x, y)]


@pytest.mark.parametrize("signalling", [False, True])
@pytest.mark.parametrize("policy", [{}, {"subnormals": "flush_both"}, {"quiet_nan_raises": True}])
@pytest.mark.parametrize("name", BY_DEFINITION)
def test_a_relation_is_what_the_standard_defines(name, policy, signalling):
    base, exchanged, negated = BY_DEFINITION[name]
    x, y = all_pairs(SMALL)
    truth, flags = compare(
        name, from_codes(x, SMALL), from_codes(y, SMALL), Settings(SMALL, **policy), signalling
    )
    operation = f"{base}_signalling" if signalling else base
    judge = OracleSettings(**policy)
    for i, pair in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        code, raised = operate(operation, pair[::-1] if exchanged else pair, SMALL, judge)
        assert (int(truth[i]), int(flags[i])) == (code ^ negated, int(raised)), pair


def test_orders_signal_and_equality_does_not():
    """IEEE 754-2019 §5.11, table 5.1 and 5.2."""
    assert {name for name, signals in SIGNALLING.items() if signals} == {
        "less", "less_equal", "greater", "greater_equal",
    }
    assert set(SIGNALLING) == {*BY_DEFINITION, "unordered"}


@pytest.mark.parametrize("signalling", [False, True])
def test_a_pair_is_less_equal_greater_or_unordered(signalling):
    """Exactly one of the four, IEEE 754-2019 §5.11; the flags are those of the quiet equality."""
    pair = [from_codes(c, SMALL) for c in all_pairs(SMALL)]
    outcomes = {
        name: compare(name, *pair, Settings(SMALL), signalling)
        for name in ("less", "equal", "greater", "unordered")
    }
    assert (np.sum([truth for truth, _ in outcomes.values()], axis=0) == 1).all()
    assert (outcomes["unordered"][1] == outcomes["equal"][1]).all()
    assert outcomes["unordered"][0].sum() == 32**2 - 26**2  # six codes are NaN


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        ([0x7F800001, 0x7FBFFFFF, 0xFF800001, 0x7FC00000, 0xFFC00001, 0x7F800000, 0, 1], "u4"),
        (
            [0x7FF0000000000001, 0x7FF7FFFFFFFFFFFF, 0xFFF0000000000001, 0x7FF8000000000000,
             0xFFF8000000000001, 0x7FF0000000000000, 0, 1],
            "u8",
        ),
    ],
)
def test_a_signalling_nan_has_its_top_fraction_bit_clear(codes, kind):
    x = np.array(codes, kind).view(kind.replace("u", "f"))
    assert is_signalling(x).tolist() == [True, True, True, *[False] * 5]


@pytest.mark.parametrize("nan", ["canonical", "propagate_first", "x86"])
@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_an_extreme_is_what_the_standard_defines(name, nan):
    x, y = all_pairs(SMALL)
    values, flags = extreme(
        name, from_codes(x, SMALL), from_codes(y, SMALL), Settings(SMALL, nan=nan)
    )
    codes = to_codes(values, SMALL).tolist()
    judge = OracleSettings(nan=nan)
    for i, pair in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        code, raised = operate(name, pair, SMALL, judge)
        assert (codes[i], int(flags[i])) == (code, int(raised)), tuple(map(hex, pair))


def test_minus_zero_is_below_plus_zero_in_either_order():
    zeros = np.float32([0.0, -0.0])
    for name, negative in (("maximum", False), ("fmax", False), ("minimum", True), ("fmin", True)):
        values, flags = extreme(name, zeros, -zeros, Settings(fp.BINARY32))
        assert np.signbit(values).tolist() == [negative, negative], name
        assert not flags.any()


def test_operands_broadcast_and_stay_as_they_are():
    x, y = np.float32([[1.0], [3.0]]), np.float32([2.0, np.nan, 0.5])
    copies = x.copy(), y.copy()
    truth, flags = compare("greater", x, y, Settings(fp.BINARY32), signalling=True)
    assert truth.tolist() == [[False, False, True], [True, False, True]]
    assert flags.tolist() == [[0, INVALID, 0]] * 2
    values, _ = extreme("fmin", x, y, Settings(fp.BINARY32))
    assert values.tolist() == [[1.0, 1.0, 0.5], [2.0, 3.0, 0.5]]
    for before, after in zip(copies, (x, y), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("fmt", [SMALL, fp.E4M3FN, fp.F143, fp.E2M1FN, fp.BINARY64], ids=str)
@pytest.mark.parametrize("name", ["negative", "absolute"])
def test_sign_operations_change_the_sign_bit_alone(name, fmt):
    """Also of NaN; where zero and NaN have one sign only, these stay as they are."""
    if fmt == fp.BINARY64:
        codes = np.array([0, 1, 0x3FF << 52, 0x7FF << 52 | 1, 0x7FF8 << 48, 0x7FF << 52], np.uint64)
        codes = np.concatenate([codes, codes | np.uint64(1 << 63)])
        x = codes.view(np.float64)
        result = with_sign(name, x, Settings(fmt)).view(np.uint64).tolist()
    else:
        codes = np.arange(fmt.n_codes).astype(fmt.code_dtype)
        x = from_codes(codes, fmt)
        result = to_codes(with_sign(name, x, Settings(fmt)), fmt).tolist()
    assert result == [operate(name, (c,), fmt)[0] for c in codes.tolist()]


def test_a_sign_operation_of_a_scalar_stays_an_array():
    x = np.float32(-2.0)
    result = with_sign("absolute", np.asarray(x), Settings(fp.BINARY32))
    assert isinstance(result, np.ndarray)
    assert (result.shape, result.dtype, float(result)) == ((), np.float32, 2.0)
