"""The SLIC unit: shapes of a pass, roundings (corners, law)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.records.units import find_unit
from ipu.machine.units.slic import GROUPINGS, STRIDES, grouping
from tests.fpsim.in_partials import matmul

HALF = fp.Context(fp.BINARY16)


def normal(shape, seed=0, context=HALF):
    return context.array(np.random.default_rng(seed).standard_normal(shape))


@pytest.mark.parametrize(
    ("name", "channels"), [("SLIC_F16_F32", 4), ("SLIC_F8_F16", 8), ("SLIC_F32_F32", 2)]
)
def test_a_pass_is_four_taps_of_the_channels_of_a_vector(name, channels):
    unit = find_unit(name)
    assert unit.taps == 4
    assert unit.channels == 4 * channels


@pytest.mark.parametrize("partials", ["F32", "F16"])
def test_a_slic_pass_rounds_as_sixteen_channels_of_the_amp(partials):
    a, b = normal((9, 64)), normal((64, 5), 1)
    assert np.array_equal(
        matmul(a, b, f"SLIC_F16_{partials}").values, matmul(a, b, f"AMP_F16_{partials}").values
    )


def test_a_quarter_of_halves_is_rounded_twice():
    half, quarter = fp.Context(fp.BINARY16), fp.Context(fp.F143)
    a, b = half.array([[1.0, 1.0]]), half.array([[1 + 2.0**-4], [2.0**-14]])
    assert float(matmul(a, b, "VMAC_F16_F32", context=quarter).values[0, 0]) == 1.125
    assert float(matmul(a, b, "VMAC_F16_F16", context=quarter).values[0, 0]) == 1.0


def test_an_empty_k_stores_nothing():
    start = HALF.array([[1.0, -0.0]])
    a, b = HALF.zeros((1, 0)), HALF.zeros((0, 2))
    context = fp.Context(fp.BINARY16, rounding=fp.SR(3))
    unchanged = matmul(a, b, "VMAC_F16_F16", context=context, accumulator=start)
    assert np.signbit(unchanged.values).tolist() == [[False, True]]
    assert context.operation == 1  # a product has a number whatever it stores


def test_groups_share_a_vector():
    assert [grouping(c) for c in (1, 2, 3, 4)] == [(4, 1), (2, 2), (1, 4), (1, 4)]
    assert all(groups * channels == 4 for groups, channels in GROUPINGS.value)
    assert STRIDES.value == (1, 2)
    with pytest.raises(ValueError, match="channels=5 per group"):
        grouping(5)
