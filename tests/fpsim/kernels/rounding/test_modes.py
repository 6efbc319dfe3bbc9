"""Modes as numbers: those of the records and those of the kernels are the same (law)."""

from __future__ import annotations

import pytest

from fpsim.elementwise.constants import mode_number
from fpsim.kernels.by_operation.lane_rounding import DIRECTIONS, FUSED_MODES, NATIVE_MODES
from fpsim.kernels.rounding import modes
from fpsim.records.rounding import MODES, SR, Up


def test_the_steps_of_records_are_those_of_kernels():
    assert list(Up) == [modes.NEVER, modes.ABOVE_HALF, modes.FROM_HALF, modes.ALWAYS]
    for name, rounding in MODES.items():
        assert mode_number(rounding) == getattr(modes, name)
    assert mode_number(SR(5)) == modes.SR


@pytest.mark.parametrize("name", [name for name, m in MODES.items() if not m.stochastic])
def test_a_number_holds_the_steps_of_its_mode(name):
    number, rounding = getattr(modes, name), MODES[name]
    for negative in (False, True):
        assert modes.steps_of(number, negative) == rounding.steps_of(negative)
    assert modes.is_signed(number) == (rounding.steps_of(True) != rounding.steps_of(False))
    assert modes.has_minus_zero(number) == (name == "RTN")
    assert not modes.is_stochastic(number)


def test_numbers_differ():
    numbers = [getattr(modes, name) for name in [*MODES, "SR"]]
    assert len(set(numbers)) == len(numbers)
    assert [modes.is_stochastic(n) for n in (modes.SR, modes.SR_EQUAL)] == [True, True]
    assert not modes.is_signed(modes.SR)
    assert NATIVE_MODES < FUSED_MODES < DIRECTIONS.keys()
