"""Products that run time after time on the same memory (law: each time those of one call)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
import ipu.machine.units.amp  # noqa: F401
from fpsim.products.by_unit.dispatch import multiply
from fpsim.products.by_unit.repeated import RepeatedProduct
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.units import find_unit
from fpsim.state.draws import NO_PLACES, Draw, Places
from tests.threads import on_threads
from tests.tiers import pick

#: Partials in binary32, and in binary16 after each pass.
UNITS = ["AMP_F16_F32", "V100_F16_F16"]

HALF = fp.Context(fp.BINARY16)
CONTEXTS = {
    "RNE": fp.Context(fp.BINARY16),
    "SR": fp.Context(fp.BINARY16, rounding=fp.SR(13, subnormal_bits=16)),
    "whole words": fp.Context(fp.BINARY16, rounding=fp.SR(23)),
    "saturate": fp.Context(fp.BINARY16, overflow="saturate"),
}
#: Rows, terms, columns: calls of zeros, panels in one part, in several, tiles of few rows.
SHAPES = [(5, 3, 17), (2, 21, 40), (16, 70, 530), (3, 300, 210), (258, 9, 300)]
SEED = np.uint64(11)


def operand(rng, shape, laid):
    """Numbers of binary16 with flags in their products; transposed where it is said."""
    numbers = rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 9, shape)
    values = HALF.array(numbers).carrier
    return np.ascontiguousarray(values.T).T if laid == "turned" else values


def once(settings, a, b, number):
    """Values and flags of one call, as bytes."""
    places, shape = NO_PLACES, (a.shape[0], b.shape[1])
    if settings.settings.rounding.stochastic:
        places = Places(
            Draw(SEED, np.uint64(number), None), settings.rounding_places(a.shape[1]), shape,
            wide=settings.settings.random_most > 16,
        )
    values, flags = multiply(settings, a, b, None, shape, places)
    return values.tobytes(), flags.tobytes()


def all_times(shape, unit, context, laid):
    """Three times, with other numbers; the second time another engine computes."""
    rng = np.random.default_rng(5)
    settings = UnitSettings(find_unit(unit), fp.BINARY16, fp.BINARY16, context.core.settings)
    rows, terms, columns = shape
    a, b = operand(rng, (rows, terms), laid), operand(rng, (terms, columns), laid)
    values, flags = np.ones((rows, columns), np.float32), np.ones((rows, columns), np.uint8)
    product = RepeatedProduct(settings, a, b, values, flags)
    for number in range(3):
        a[...], b[...] = operand(rng, a.shape, ""), operand(rng, b.shape, "")
        if number == 1:
            a[-1, -1] = np.inf
        raised = product.run(SEED, np.uint64(number))
        assert (values.tobytes(), flags.tobytes()) == once(settings, a, b, number)
        assert raised == np.bitwise_or.reduce(flags, axis=None)


@pytest.mark.parametrize("laid", ["in rows", "turned"])
@pytest.mark.parametrize("name", pick(["RNE", "SR"], list(CONTEXTS), list(CONTEXTS)))
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_time_it_gives_what_one_call_gives(shape, unit, name, laid):
    all_times(shape, unit, CONTEXTS[name], laid)


@pytest.mark.parametrize("shape", SHAPES[2:], ids=str)
def test_threads_share_large_ones(shape):
    on_threads(3, lambda: all_times(shape, UNITS[0], CONTEXTS["SR"], "turned"))
