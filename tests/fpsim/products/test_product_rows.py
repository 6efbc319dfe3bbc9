"""Products of rows with keys of their own are what each row gives alone (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.elementwise.apply import apply
from fpsim.products.by_unit.dispatch import multiply
from fpsim.products.by_unit.product_rows import multiply_rows
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.formats import BINARY16, BINARY32
from fpsim.records.rounding import RNE, SR
from fpsim.records.settings import Settings
from fpsim.records.units import find_unit
from fpsim.state.draws import NO_PLACES, Draw, Places

ROWS, NUMBER = 3, 9
SEEDS = np.array([1, 2, 2**40], np.uint64)


def _numbers(shape, seed):
    numbers = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 100
    return apply("convert", (numbers,), Settings(BINARY16), track=False)[0]


@pytest.mark.parametrize("name", ["AMP_F16_F32", "AMP_F16_F16", "V100_F16_F32"])
@pytest.mark.parametrize("rounding", [RNE, SR(13), SR(24)], ids=str)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((ROWS, 4, 20), (1, 20, 5)), ((ROWS, 4, 20), (ROWS, 20, 5)), ((1, 4, 20), (ROWS, 20, 5)),
        ((1, 4, 20), (1, 20, 5)), ((ROWS, 2, 4, 20), (1, 20, 5)), ((1, 4, 20), (ROWS, 2, 20, 5)),
    ],
)
def test_a_row_is_multiplied_as_it_is_alone(name, rounding, left, right):
    import ipu.machine  # registers the units of the IPU

    assert ipu.machine
    settings = UnitSettings(find_unit(name), BINARY16, BINARY16, Settings(BINARY16, rounding))
    a, b = _numbers(left, 0), _numbers(right, 1)
    batch = np.broadcast_shapes(left[1:-2], right[1:-2])
    shape = (*batch, left[-2], right[-1])
    keys = (SEEDS, NUMBER, 0) if rounding.stochastic else None
    values, flags = multiply_rows(settings, a, b, shape, ROWS, keys)
    for r in range(ROWS):
        places = NO_PLACES
        if keys:
            draw = Draw(SEEDS[r], np.uint64(NUMBER), None)
            wide = settings.settings.random_most > 16
            places = Places(draw, settings.rounding_places(20), shape, wide=wide)
        x, y = (z[r if len(z) > 1 else 0] for z in (a, b))
        alone, raised = multiply(settings, x, y, None, shape, places)
        assert np.array_equal(values[r].view("u4"), alone.view("u4")), r
        assert flags[r] == np.bitwise_or.reduce(raised, axis=None)


def test_a_product_that_overflows_raises_on_its_row_alone():
    settings = UnitSettings(
        find_unit("V100_F16_F32"), BINARY16, BINARY16, Settings(BINARY32, RNE)
    )
    a = np.ones((2, 1, 4), np.float32)
    a[1, 0, 0] = np.inf
    b = np.float32([[[0.0], [1], [1], [1]]])
    _, flags = multiply_rows(settings, a, b, (1, 1), 2)
    assert flags[0] == 0 != flags[1]
