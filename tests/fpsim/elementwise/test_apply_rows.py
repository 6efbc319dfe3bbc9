"""Rows with keys and flags of their own are what `apply` gives each of them (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.elementwise.apply import apply
from fpsim.elementwise.apply_rows import apply_rows, flags_of_rows
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32
from fpsim.records.rounding import RNE, RTP, SR
from fpsim.records.settings import Settings
from fpsim.state.draws import Draw

SEEDS = np.array([3, 2**63 + 5, 3], np.uint64)


def _numbers(fmt, shape, seed):
    """Values of the format, with overflows and zeros of products among them."""
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal(shape) * np.exp2(rng.integers(-14, 15, shape))
    settings = Settings(fmt, overflow="saturate")
    return apply("convert", (numbers.astype(np.float32),), settings, track=False)[0]


@pytest.mark.parametrize("fmt", [BINARY16, BFLOAT16, BINARY32], ids=str)
@pytest.mark.parametrize("rounding", [RNE, RTP, SR(13), SR(24)], ids=str)
@pytest.mark.parametrize("operation", ["add", "multiply", "divide"])
@pytest.mark.parametrize("second", ["rows", "one row", "numbers", "a number"])
def test_a_row_is_computed_as_it_is_alone(fmt, rounding, operation, second):
    settings = Settings(fmt, rounding)
    shape, rows = (5, 7), len(SEEDS)
    x = _numbers(fmt, (rows, 35), 0)
    x[2] = x[0]  # the same numbers and the same key give the same bits
    sizes = {"rows": (rows, 35), "one row": (1, 35), "numbers": (rows, 1), "a number": (1, 1)}
    y = _numbers(fmt, sizes[second], 1)
    keys = (SEEDS, 11, 40) if rounding.stochastic else None
    values, flags = apply_rows(operation, [x, y], settings, shape, rows, keys)
    for r in range(rows):
        bits = Draw(SEEDS[r], np.uint64(11), None, 40)
        other = y[r if len(y) > 1 else 0]
        alone, raised = apply(operation, [x[r], other], settings, bits=bits)
        assert np.array_equal(values[r].ravel().view("u4"), alone.view("u4")), r
        assert flags[r] == raised


def test_flags_are_those_of_the_row_that_raised_them():
    x = np.float32([[1, 2], [60000, 1], [1, 1e-6]])
    values, flags = apply_rows(
        "multiply", [x, np.float32([[2, 0.5]])], Settings(BINARY16), (2,), 3
    )
    assert values.tolist()[0] == [2.0, 1.0]
    assert np.isinf(values[1, 0])
    assert len(set(flags.tolist())) == 3


@pytest.mark.parametrize("dirty", [False, True])
def test_flags_of_elements_are_joined_by_row(dirty):
    element_flags = np.zeros((3, 2, 2), np.uint8)
    if dirty:
        element_flags[1] = [[1, 0], [4, 1]]
    assert flags_of_rows(element_flags).tolist() == [0, 5 * dirty, 0]
