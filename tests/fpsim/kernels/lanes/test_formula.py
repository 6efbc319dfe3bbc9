"""Formulas: choices are plain, conditions of the running kernel are not (law)."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from fpsim.kernels.lanes.formula import formula, when
from fpsim.kernels.lanes.memory import load, store
from fpsim.kernels.lanes.vectors import any_lane
from tests.fpsim.kernels.on_lanes import on_bits

A = np.arange(16, dtype=np.uint32)


def test_a_choice_leaves_one_branch():
    @formula
    def shifted(a, left):
        return a << 3 if left else a >> 3

    @njit
    def loop(x, out):
        store(out, 0, shifted(load(x, 0), True))
        store(out, 16, shifted(load(x, 0), False))

    out = np.zeros(32, np.uint32)
    loop(A, out)
    assert np.array_equal(out, np.concatenate([A << 3, A >> 3]))


def test_a_condition_of_the_kernel_cannot_choose_in_python():
    with pytest.raises(Exception, match=r"choice is not known|No match"):
        on_bits(lambda a: a if a == 0 else a + 1, A)


@pytest.mark.parametrize(("limit", "expected"), [(3, A + 100), (99, A)])
def test_a_rare_branch_is_taken_where_it_holds(limit, expected):
    def maybe(a):
        (result,) = when(any_lane(a > limit), lambda b: (b + 100,), a)
        return result

    assert np.array_equal(on_bits(maybe, A), expected)
