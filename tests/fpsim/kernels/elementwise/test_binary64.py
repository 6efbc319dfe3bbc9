"""Operations in binary64: those of numpy to the bit, with one NaN (differential, corners)."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fpsim.elementwise.apply import apply, native
from fpsim.kernels.elementwise.binary64 import unify_nans
from fpsim.records.formats import BINARY64
from fpsim.records.settings import Settings

RNG = np.random.default_rng(9)
SETTINGS = Settings(BINARY64)
BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
}
CORNERS = np.array([
    0.0, -0.0, 1.0, -1.5, 2.0**-1074, -(2.0**-1022), 1.7e308, -1.7e308, np.inf, -np.inf, np.nan,
    -np.nan,
])
NAN = np.float64(np.nan).tobytes()


def expected(function, *operands):
    with np.errstate(all="ignore"):
        result = np.asarray(function(*operands))
    return np.where(np.isnan(result), np.nan, result)


@pytest.mark.parametrize("name", BINARY)
def test_all_pairs_of_corners(name):
    x, y = (np.array(z) for z in zip(*product(CORNERS, CORNERS), strict=True))
    assert native(name, (x, y)).tobytes() == expected(BINARY[name], x, y).tobytes()


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(("shape_x", "shape_y"), [
    ((), ()), ((1,), (1,)), ((5,), ()), ((), (5,)), ((1,), (1024,)), ((1025,), (1025,)),
    ((3000,), (1,)), ((4, 600), (600,)), ((4, 600), (4, 1)), ((2, 3), (3, 2, 1)), ((0, 3), (3,))])
def test_shapes_broadcast_as_in_numpy(name, shape_x, shape_y):
    x, y = RNG.normal(size=shape_x), RNG.normal(size=shape_y)
    result = native(name, (x, y))
    assert result.shape == np.broadcast_shapes(shape_x, shape_y)
    assert result.tobytes() == expected(BINARY[name], x, y).tobytes()


@pytest.mark.parametrize(("name", "function"), [
    ("sqrt", np.sqrt), ("copy", np.positive), ("round_to_integral", np.rint)])
@pytest.mark.parametrize("n", [1, 12, 2000])
def test_operations_of_one_operand(name, function, n):
    x = np.resize(np.append(CORNERS, RNG.normal(size=30)), n)
    assert native(name, (x,)).tobytes() == expected(function, x).tobytes()


@pytest.mark.parametrize("step", [2, -1])
def test_operands_and_results_lie_anywhere(step):
    x, y, out = RNG.normal(size=(3, 2100))
    x[5] = np.nan
    result, _ = apply("add", (x[::step], y[::step]), SETTINGS, out=out[::step])
    assert result.tobytes() == expected(np.add, x[::step], y[::step]).tobytes()
    narrow = np.float32([1.5, np.nan])
    converted, _ = apply("convert", (narrow,), SETTINGS)
    assert converted.dtype == np.float64
    np.testing.assert_array_equal(converted, narrow)


@pytest.mark.parametrize("n", [1, 1500])
def test_a_result_may_take_the_place_of_an_operand(n):
    x, y = RNG.normal(size=(2, n))
    product_ = expected(np.multiply, x, y)
    apply("multiply", (x, y), SETTINGS, out=x)
    assert x.tobytes() == product_.tobytes()


def test_every_nan_becomes_the_same():
    codes = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001], np.uint64)
    x = np.concatenate([[1.0], codes.view(np.float64), [-0.0]])
    unify_nans(x)
    assert x.tobytes() == np.array([1.0, np.nan, np.nan, np.nan, -0.0]).tobytes()
    assert native("copy", (codes.view(np.float64),)).tobytes() == 3 * NAN
