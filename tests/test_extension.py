"""Adding something touches one place: a format, a mode, a unit, a primitive, each from outside."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
import ipu.machine.units.amp  # noqa: F401  (names its units)
from fpsim.linalg import rounded_matmul
from fpsim.records.evidence import Evidence
from fpsim.records.rounding import Up
from fpsim.records.units import UNITS, MatrixUnit, find_unit, register
from ipu.learn.tensor import Primitive, gradients
from ipu.learn.variables import Variable
from ipu.machine.device import Device
from tests.fpsim.in_partials import matmul
from tests.tiers import pick


def test_a_format_is_one_record() -> None:
    """An 8-bit format of 6 digits: every code there and back, and arithmetic at once."""
    small = fp.Format.custom(3, 5, name="e3m4")
    codes = np.arange(small.n_codes, dtype=small.code_dtype)
    context = fp.Context(small)
    values = np.array([fp.decode(int(c), small) for c in codes])
    assert np.array_equal(
        context.array(values).codes()[~np.isnan(values)], codes[~np.isnan(values)]
    )
    assert float(context.array(1.0) / 3.0) == 0.328125


def test_a_rounding_mode_is_one_record() -> None:
    """Ties toward +infinity, which no member has: elements, sums, products, units, flags."""
    mode = fp.Rounding(
        "RNU", steps=(Up.FROM_HALF, Up.FROM_HALF), negative_steps=(Up.ABOVE_HALF, Up.ABOVE_HALF)
    )
    half = fp.Context(fp.BINARY16, rounding=mode)
    ulp = 2.0**-10
    x = half.array([1 + ulp / 2, 1 + 1.5 * ulp, -1 - ulp / 2, -1 - 1.5 * ulp, 1 + ulp / 4])
    assert x.values.tolist() == [1 + ulp, 1 + 2 * ulp, -1, -1 - ulp, 1]
    assert half.flags == fp.Flags.INEXACT
    # The ends of the grid: half the smallest subnormal, and the middle above the largest number.
    ends = half.array([2.0**-25, -(2.0**-25), 65520.0, -65520.0])
    assert ends.values.tolist() == [2.0**-24, 0, np.inf, -65504]
    # 2049 lies between 2048 and 2050.
    row, column = half.array([[2048.0, 1.0]]), half.array([[1.0], [1.0]])
    for chain in pick([{}], *[[{}, {"fused": True}, {"kahan": True}]] * 2):
        assert float(rounded_matmul(row, column, **chain).values[0, 0]) == 2050
        assert float(rounded_matmul(-row, column, **chain).values[0, 0]) == -2048
    assert float(half.sum(row).values) == 2050
    assert float(matmul(row, column, unit="AMP_F16_F16").values[0, 0]) == 2050
    assert float(matmul(-row, column, unit="AMP_F16_F16").values[0, 0]) == -2048


def test_a_mode_needs_steps_and_a_name_of_its_own() -> None:
    never = (Up.NEVER, Up.NEVER)
    for mode in (fp.Rounding("RNU"), fp.Rounding("RNE", steps=never)):
        with pytest.raises(ValueError, match="is not a Rounding; use one of"):
            fp.Context(fp.BINARY16, rounding=mode)


def test_a_unit_is_one_record() -> None:
    """Two exact products and the accumulator, toward zero: a machine that nobody built."""
    name = "OURS_F16_F32"
    register([
        MatrixUnit(
            name, "two terms", (fp.BINARY16,), fp.BINARY32, terms=2, window=24, rounding=fp.RTZ,
            evidence={"window": (Evidence.ASSUMED, "this test")},
        )
    ])
    try:
        half = fp.Context(fp.BINARY16)
        a, b = half.array([[1.0, 2.0**-12, 1.0]]), half.array([[1.0], [2.0**-13], [2.0**-10]])
        assert float(matmul(a, b, unit=find_unit(name)).values[0, 0]) == 1 + 2.0**-10
    finally:
        del UNITS[name]


def test_a_primitive_is_one_entry() -> None:
    """A square with its derivative, on the tape like any other."""
    square = Primitive(
        "square",
        lambda device, x: (device.multiply(x, x), (x,)),
        (lambda device, g, saved: device.multiply(g, device.multiply(saved[0], 2.0)),),
    )
    device = Device()
    x = Variable(device.context(fp.BINARY16).array([3.0, -0.5]), device, "x")
    y = square(x)
    (slope,) = gradients(y, [x], device.context(fp.BINARY16).array([1.0, 1.0]))
    assert slope is not None
    assert y.array.values.tolist() == [9.0, 0.25]
    assert slope.values.tolist() == [6.0, -1.0]
