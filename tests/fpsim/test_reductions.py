"""Sums and products as methods of a Context: choices that exclude each other, shapes (corners).

How far it is to the kernel is counted here too (law).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fpsim as fp
from tests.calls import codes_called

HALF = fp.Context(fp.BINARY16)
ROW, COLUMN = HALF.array([[1.0, 2.0]]), HALF.array([[3.0], [4.0]])
UNIT = "V100_F16_F32"
#: The file of the loop of tiles.
LOOP = ("kernels", "by_unit", "tiles.py")


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        ({"unit": UNIT, "fused": True}, "fused=True goes with unit=None; drop unit or fused"),
        ({"unit": UNIT, "kahan": True}, "kahan=True goes with unit=None; drop unit or kahan"),
        (
            {"partials": fp.BINARY32},
            "partials=binary32 goes with a unit; name one",
        ),
        ({"scale": 3}, "scale=3 goes with a unit; name one or drop scale"),
        ({"subnormals": "keep"}, "subnormals=keep goes with a unit; name one or drop subnormals"),
        ({"stochastic_stores": False}, "stochastic_stores=False goes with a unit"),
        ({"fused": True, "kahan": True}, "fused=True and kahan=True exclude each other"),
    ],
)
def test_choices_of_the_other_kind_are_refused(choices, sentence):
    with pytest.raises(ValueError, match=sentence):
        HALF.matmul(ROW, COLUMN, **choices)


def test_an_unknown_choice_is_refused_in_the_name_of_the_function_that_was_called():
    with pytest.raises(TypeError, match=r"Context\.matmul\(\) got an unexpected .*'fuse'"):
        HALF.matmul(ROW, COLUMN, fuse=True)


@pytest.mark.parametrize("unit", [None, UNIT])
def test_an_ndarray_is_told_to_be_converted(unit):
    with pytest.raises(TypeError, match=r"b is ndarray, not an Array; convert it with ctx.a"):
        HALF.matmul(ROW, COLUMN.values, unit)
    with pytest.raises(TypeError, match=r"a is ndarray, not an Array; convert it with ctx.a"):
        HALF.matmul(ROW.values, COLUMN, unit)


@pytest.mark.parametrize("unit", [None, UNIT])
@pytest.mark.parametrize(
    ("a", "b", "shape"),
    [
        ((5, 2, 3), (3, 4), (5, 2, 4)),
        ((2, 3), (5, 3, 4), (5, 2, 4)),
        ((5, 1, 2, 3), (6, 3, 4), (5, 6, 2, 4)),
        ((0, 2, 3), (3, 4), (0, 2, 4)),
        ((5, 2, 0), (5, 0, 4), (5, 2, 4)),
    ],
)
def test_leading_dimensions_broadcast_with_a_unit_and_without(unit, a, b, shape):
    rng = np.random.default_rng(4)
    x, y = HALF.array(rng.standard_normal(a)), HALF.array(rng.standard_normal(b))
    product = HALF.matmul(x, y, unit)
    assert product.shape == shape
    batch = shape[:-2]
    left = np.broadcast_to(x.values, (*batch, *a[-2:]))
    right = np.broadcast_to(y.values, (*batch, *b[-2:]))
    for index in np.ndindex(*batch):
        one = HALF.matmul(HALF.wrap(left[index].copy()), HALF.wrap(right[index].copy()), unit)
        assert np.array_equal(one.codes(), product[index].codes())


def calls_before_the_kernel(action):
    """Python calls between the user's call and the loop of tiles, and the files they are in."""
    calls = [Path(code.co_filename) for code in codes_called(action, warm=0)]
    loop = next(i for i, file in enumerate(calls) if file.parts[-3:] == LOOP)
    calls = calls[:loop]
    files = {file for file in calls if "fpsim" in file.parts and "kernels" not in file.parts}
    return len(calls), files


def python_calls(action):
    """Python functions that a call runs, once its caches are full."""
    return len(codes_called(action))


def test_operations_cost_few_calls_of_python():
    a = HALF.array(np.random.default_rng(2).standard_normal((8, 8)))
    assert python_calls(lambda: HALF.matmul(a, a)) <= 45
    assert python_calls(lambda: HALF.matmul(a, a, UNIT)) <= 36
    assert python_calls(lambda: HALF.add(a, a)) <= 14
    assert python_calls(lambda: a + a) <= 16


def test_a_product_reaches_its_kernel_in_forty_calls_through_six_files():
    a = HALF.array(np.ones((8, 8)))
    for _ in range(2):  # the first call fills the caches
        calls, files = calls_before_the_kernel(lambda: HALF.matmul(a, a, UNIT))
    assert calls <= 40
    assert len(files) <= 6
