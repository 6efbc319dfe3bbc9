"""Unfolded left operands against the matrices they stand for (law)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
import ipu.machine.units.amp  # noqa: F401  (registers the units of the IPU)
from fpsim.elementwise.codes import to_codes
from fpsim.products.by_unit import dispatch as engines
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.rows import Rows
from fpsim.records.units import find_unit
from fpsim.state.draws import draw_places
from tests.tiers import pick

#: Each with kernels of its own; the quick tier takes one of each kind of partials.
EVERY = ["AMP_F16_F32", "AMP_F16_F16", "AMP_F16_F16.exact", "AMP_F16_F32.sticky", "V100_F16_F16"]
UNITS = pick(EVERY[:2], EVERY, EVERY)


def windows(context, rng):
    """Windows of 3 by 3 pixels of 5 channels, as rows, over a picture of 9 by 7."""
    values = context.array(rng.standard_normal(9 * 7 * 5)).values
    y, x = np.meshgrid(np.arange(7), np.arange(5), indexing="ij")
    ky, kx, c = np.meshgrid(*(np.arange(n) for n in (3, 3, 5)), indexing="ij")
    return Rows(values, (35 * y + 5 * x).ravel(), (35 * ky + 5 * kx + c).ravel())


def product(unit, context, a, b, shape, start=None, column=0, whole=None):
    """Values, flags and the operation's places, as codes."""
    settings = UnitSettings(find_unit(unit), fp.BINARY16, fp.BINARY16, context.core.settings)
    places = draw_places(context.core, settings.rounding_places(len(b)), whole or shape)
    values, marks = engines.multiply(settings, a, b, start, shape, places.part(column=column))
    return to_codes(values, context.format).tolist(), marks.tolist()


@pytest.mark.parametrize("bits", pick([0, 9], *[[0, 9, 20]] * 2))
@pytest.mark.parametrize("unit", UNITS)
def test_unfolded_rows_are_the_matrix_they_stand_for(unit, bits):
    rng = np.random.default_rng(bits)
    half = fp.Context(fp.BINARY16)
    a = windows(half, rng)
    b = half.array(rng.standard_normal((45, 21))).values
    context = fp.Context(fp.BINARY16, rounding=fp.SR(bits) if bits else fp.RNE, seed=5)
    start = half.array(rng.standard_normal((35, 21))).values
    for begin in (None, start):
        one = product(unit, context, a, b, (35, 21), begin)
        assert one == product(unit, context, a.matrix(), b, (35, 21), begin)


@pytest.mark.parametrize("unit", UNITS)
def test_some_columns_have_the_random_bits_of_the_whole(unit, monkeypatch):
    rng = np.random.default_rng(1)
    half = fp.Context(fp.BINARY16)
    a = windows(half, rng)
    b = half.array(rng.standard_normal((45, 21))).values
    context = fp.Context(fp.BINARY16, rounding=fp.SR(7), seed=5)
    values, marks = product(unit, context, a, b, (35, 21))
    subset = slice(6, 17)
    part = product(unit, context, a, b[:, subset], (35, 11), None, 6, (35, 21))
    assert part == ([row[subset] for row in values], [row[subset] for row in marks])
    monkeypatch.setattr(engines, "_UNFOLDED", 200)
    assert part == product(unit, context, a, b[:, subset], (35, 11), None, 6, (35, 21))
