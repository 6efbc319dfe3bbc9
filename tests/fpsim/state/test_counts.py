"""Counts of flags, zeros and subnormals: corners, law (rows add up)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.records.flags import Flags
from fpsim.state.counts import Counts

SINGLE_FLAGS = ("INEXACT", "UNDERFLOW", "OVERFLOW", "DIVBYZERO", "INVALID")


def test_every_combination_counts_for_each_flag_in_it():
    counts = Counts()
    combinations = np.repeat(np.arange(32, dtype=np.uint8), np.arange(32) + 1).reshape(-1, 2)
    counts.add("add", None, combinations, fp.BINARY16)
    row = counts["", "add"]
    for flag in SINGLE_FLAGS:
        expected = sum(c + 1 for c in range(32) if Flags(c) & Flags[flag])
        assert row[flag] == expected, flag
    assert row["results"] == combinations.size == 528
    assert (row["zeros"], row["subnormals"]) == (0, 0)


@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.BINARY32, fp.E4M3FN], ids=str)
def test_zeros_and_subnormals_end_where_the_format_says(fmt):
    normal = fmt.smallest_normal
    below = normal - fmt.smallest_subnormal
    values = np.array(
        [0.0, -0.0, fmt.smallest_subnormal, below, -below, normal, -normal, 1.0, np.nan],
        fmt.carrier,
    )
    counts = Counts()
    counts.add("convert", values, np.zeros(values.shape, np.uint8), fmt)
    row = counts["", "convert"]
    assert (row["results"], row["zeros"], row["subnormals"]) == (9, 2, 3)
    assert all(row[flag] == 0 for flag in SINGLE_FLAGS)


def test_operations_count_under_the_tensor_of_their_time():
    counts = Counts()
    flags = np.array([0, 1, 5], np.uint8)
    for tensor, times in (("weight", 2), ("gradient", 3)):
        counts.tensor = tensor
        for _ in range(times):
            counts.add("add", np.ones(3, np.float32), flags, fp.BINARY16)
        counts.add("multiply", np.zeros(3, np.float32), flags, fp.BINARY16)
    assert set(counts) == {(t, o) for t in ("weight", "gradient") for o in ("add", "multiply")}
    assert counts["weight", "add"]["INEXACT"] == 4
    assert counts.total("INEXACT") == 2 * (2 + 3 + 2)
    assert counts.total("OVERFLOW", "gradient") == 4
    assert counts.total("zeros", "weight") == 3
    assert counts.total("zeros", "") == 0
    assert counts.total("results") == 21


def test_an_empty_operation_has_a_row_of_zeros():
    counts = Counts()
    counts.add("add", np.zeros((0, 3), np.float32), np.zeros((0, 3), np.uint8), fp.BINARY16)
    assert set(counts["", "add"].values()) == {0}
    assert counts["", "add"].keys() == {"results", "zeros", "subnormals", *SINGLE_FLAGS}


def test_a_context_counts_each_operation_and_no_trapped_one():
    context = fp.Context(fp.BINARY16, count=True, traps=Flags.INVALID)
    x = context.array([6e-8, 65504.0, 0.0])
    x * 2.0
    x == 0.0  # noqa: B015  (counted as an operation)
    with pytest.raises(fp.FloatingPointTrap):
        context.sqrt(-x)
    counts = context.counts
    assert counts["", "multiply"]["OVERFLOW"] == counts["", "multiply"]["INEXACT"] == 1
    assert counts["", "equal"]["results"] == 3
    assert counts["", "equal"]["zeros"] == 0
    assert ("", "sqrt") not in counts
