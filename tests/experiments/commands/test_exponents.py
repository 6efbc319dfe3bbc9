"""The figure and the sentences of fpsim profile (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BFLOAT16, BINARY16
from fpsim.inspect.profile import profile
from ipu.experiments.commands.exponents import PANELS, exponent_figure, losses
from tests.experiments.figures import assert_panels

SMALL, LARGE = np.float32([2.0**-30, 1.0, 1.0, 1.0]), np.float32([1e30, 1.0])


def test_the_largest_loss_is_named_with_its_share():
    pairs = [(name, profile(array, fmt)) for name, array in (("small", SMALL), ("large", LARGE))
             for fmt in (BINARY16, BFLOAT16)]
    assert list(losses(pairs)) == [
        "binary16: the largest loss is in large, where 0.00% of the elements underflow and 50.00% "
        "overflow",
        "bfloat16: nothing underflows or overflows",
    ]


def test_elements_that_are_not_finite_are_told_once_for_each_array():
    array = np.float32([np.nan, np.nan, np.inf, 1.0])
    pairs = [(name, profile(values, fmt)) for name, values in (("a", array), ("b", LARGE))
             for fmt in (BFLOAT16, BINARY16)]
    assert list(losses(pairs))[2:] == [
        "a: 50.00% of the elements are NaN and 25.00% infinite, which neither underflow nor "
        "overflow"
    ]


@pytest.mark.parametrize("n", [1, 2, PANELS + 3])
def test_there_is_a_panel_for_each_array_up_to_a_limit(n):
    pairs = [(f"array {i}", profile(SMALL, BINARY16)) for i in range(n)]
    assert_panels(exponent_figure(pairs), 2 * min(n, PANELS))
