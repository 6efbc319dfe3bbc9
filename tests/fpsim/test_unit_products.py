"""Products through units: choices of one call do not leak into another; refusals (corners)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim import linalg
from fpsim.records.units import MatrixUnit, find_unit
from tests.fpsim.in_partials import k_split, matmul

UNIT = "V100_F16_F32"
HALF = fp.Context(fp.BINARY16)


def operands():
    rng = np.random.default_rng(1)
    return (HALF.array(rng.standard_normal(s)) for s in ((3, 24), (24, 5)))


def test_a_scale_of_1_is_not_true_though_they_are_equal():
    a, b = operands()
    plain = matmul(a, b, UNIT).values
    for _ in range(2):
        np.testing.assert_array_equal(matmul(a, b, UNIT, scale=1).values, 2 * plain)
        np.testing.assert_array_equal(matmul(a, b, UNIT, scale=np.int64(0)).values, plain)
        for scale in (True, False, 1.0, 63, -65, "1", None):
            with pytest.raises(ValueError, match=r"whole number from -64 to 62"):
                matmul(a, b, UNIT, scale=scale)


@pytest.mark.parametrize(
    ("overflow", "expected"), [("infinity", np.inf), ("saturate", 65504.0), ("nan", np.nan)]
)
def test_stored_partials_with_an_infinity_follow_every_overflow_policy(overflow, expected):
    unit = MatrixUnit("S", "mine", (fp.BINARY16,), fp.BINARY16, terms=4, window=24)
    assert unit.stores
    context = fp.Context(fp.BINARY16, overflow=overflow)
    a, b = context.array([[40000.0, 40000.0]]), context.array([[1.0], [1.0]])
    np.testing.assert_array_equal(matmul(a, b, unit, context=context).values, [[expected]])
    np.testing.assert_array_equal(matmul(a / 2, b, unit, context=context).values, [[40000.0]])


@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.BINARY32], ids=str)
@pytest.mark.parametrize("stack", [(), (2,)])
def test_an_operand_that_repeats_its_numbers_is_read_as_it_is_written_out(fmt, stack):
    """As the gradient of a sum, one number in the shape of all: nothing behind it is read."""
    unit = {fp.BINARY16: UNIT, fp.BINARY32: "AMP_F32_F32"}[fmt]
    context = fp.Context(fmt)
    for small in ((1, 1), (1, 4), (3, 1)):
        a = np.broadcast_to(np.full(small, 2, np.float32), (*stack, 3, 4))
        for repeated in ((1, 1), (1, 5), (4, 1)):
            b = np.broadcast_to(np.full(repeated, 3, np.float32), (*stack, 4, 5))
            x, y = (context.array([0.0]).like(values) for values in (a, b))
            assert not x.carrier.flags.c_contiguous
            np.testing.assert_array_equal(linalg.matmul(x, y, unit).values, np.matmul(a, b))


def test_choices_of_one_call_are_not_those_of_the_next():
    a, b = operands()
    calls = [
        {"context": fp.Context(fp.BINARY16, rounding=mode), "partials": partials, "scale": scale}
        for mode in ("RNE", "RTZ")
        for partials in (None, fp.BINARY16)
        for scale in (0, 3)
    ]
    first = [matmul(a, b, UNIT, **choice).values.tobytes() for choice in calls]
    again = [matmul(a, b, UNIT, **choice).values.tobytes() for choice in calls[::-1]]
    assert first == again[::-1]
    # Half partials of this unit are its own accumulator, which no context rounds.
    assert len(set(first)) == 6


def test_many_records_in_turn_keep_their_constants():
    """More than a cache of calls holds; a record that is gone is not taken for a new one."""
    one, tail = HALF.array([[1.0, 2.0**-10]]), HALF.array([[1.0], [2.0**-10]])
    for _ in range(2):
        for window in range(2, 40):
            unit = replace(find_unit(UNIT), name=f"TEST{window}_F16_F32", window=window)
            result = float(matmul(one, tail, unit).values[0, 0])
            assert result == (1 + 2.0**-20 if window >= 20 else 1.0), window


def test_the_result_is_in_the_context_or_in_the_format_that_is_named():
    a, b = operands()
    context = fp.Context(fp.BINARY16)
    for product in (linalg.matmul(a, b, UNIT), HALF.matmul(a, b, UNIT), a @ b):
        assert product.context is HALF
    assert linalg.matmul(a, b, UNIT, context=context).context is context
    for wide in (linalg.matmul(a, b, UNIT, to="fp32"), HALF.matmul(a, b, UNIT, to=fp.BINARY32)):
        assert wide.format == fp.BINARY32
        assert wide.to("half").codes().tolist() == context.matmul(a, b, UNIT).codes().tolist()
    assert HALF.matmul(a[0], b, UNIT, to="binary32").format == fp.BINARY32
    wide = fp.Context("single").zeros(b.shape[1])
    assert HALF.matmul(a[0], b, UNIT, to="binary32", out=wide) is wide
    assert HALF.matmul(a[0], b, UNIT).codes().tolist() == wide.to("half").codes().tolist()
    named = linalg.matmul(a, b, UNIT, partials="binary16")
    assert named.codes().tolist() == matmul(a, b, UNIT, partials=fp.BINARY16).codes().tolist()
    with pytest.raises(ValueError, match="narrower than the result"):
        matmul(a, b, "V100_F16_F16", context=fp.Context(fp.BINARY32))
    with pytest.raises(ValueError, match="not offered"):
        matmul(a, b, UNIT, partials=fp.F143)


def test_an_accumulator_is_where_the_sum_begins():
    a, b = (HALF.array(np.full(s, 0.5)) for s in ((2, 4), (4, 3)))
    context = fp.Context(fp.BINARY32)
    start = context.array(np.arange(6.0).reshape(2, 3))
    original = start.values.copy()
    result = matmul(a, b, UNIT, accumulator=start)
    np.testing.assert_array_equal(result.values, original + 1)
    np.testing.assert_array_equal(start.values, original)
    for wrong, kind in (
        (start.values, TypeError),
        (HALF.zeros((2, 3)), TypeError),
        (context.zeros((3, 2)), ValueError),
    ):
        with pytest.raises(kind, match="accumulator"):
            matmul(a, b, UNIT, accumulator=wrong)


@pytest.mark.parametrize("call", [matmul, lambda *a, **k: k_split(*a, 2, **k)])
def test_an_output_is_filled_or_refused_before_anything_changes(call):
    a, b = operands()
    context = fp.Context(fp.BINARY16, rounding=fp.SR(5))
    wanted = call(a, b, UNIT, context=fp.Context(fp.BINARY16, rounding=fp.SR(5))).values
    for wrong, kind in ((context.zeros((3, 4)), ValueError), (np.zeros((3, 5)), TypeError)):
        with pytest.raises(kind, match="out"):
            call(a, b, UNIT, context=context, out=wrong)
    assert (context.flags, context.operation) == (fp.Flags.NONE, 0)
    out = context.zeros((3, 5))
    assert call(a, b, UNIT, context=context, out=out) is out
    np.testing.assert_array_equal(out.values, wanted)
    assert context.operation == 1


def test_wrong_inputs_are_named():
    a, b = operands()
    with pytest.raises(TypeError, match="b is ndarray, not an Array"):
        matmul(a, b.values, UNIT)
    with pytest.raises(TypeError, match="takes binary16 inputs, got binary32 for a"):
        matmul(a.to(fp.BINARY32), b, UNIT)
    with pytest.raises(ValueError, match="subnormals='flush'"):
        matmul(a, b, UNIT, subnormals="flush")
    with pytest.raises(ValueError, match="Did you mean"):
        matmul(a, b, "V100_F16_F33")
