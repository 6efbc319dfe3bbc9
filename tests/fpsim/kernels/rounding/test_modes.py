"""Modes and rules of a rounding: those of the records reach the lanes (law)."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from fpsim.elementwise.constants import mode_number, plan
from fpsim.kernels.by_operation.lane_rounding import DIRECTIONS, FUSED_MODES, NATIVE_MODES
from fpsim.kernels.lanes.memory import store
from fpsim.kernels.rounding import modes
from fpsim.kernels.rounding.rule import FIELDS, RoundingRule, spread
from fpsim.records.formats import BINARY16
from fpsim.records.rounding import MODES, SR, Up
from fpsim.records.settings import Settings


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


@pytest.mark.parametrize("width", [32, 64])
def test_every_constant_is_in_all_lanes(width):
    @njit
    def loop(constants, out):
        rule = spread(constants)
        n = out.shape[1]
        store(out.reshape(-1), 0, rule.drop)
        store(out.reshape(-1), n, rule.nan_set)
        store(out.reshape(-1), 2 * n, rule.random_most)

    constants = np.arange(100, 100 + len(FIELDS)).astype(f"u{width // 8}")
    out = np.zeros((3, 512 // width), constants.dtype)
    loop(constants, out)
    rule = RoundingRule(*constants.tolist())
    assert [set(row) for row in out.tolist()] == [{rule.drop}, {rule.nan_set}, {rule.random_most}]


def test_the_rule_of_binary16():
    rule = RoundingRule(*map(int, plan("add", Settings(BINARY16), 32).constants))
    assert (rule.drop, rule.hidden, rule.emin) == (13, 1 << 23, 127 - 14)
    assert np.uint32(rule.over_pos).view(np.float32) == 65520
    assert np.uint32(rule.quantum).view(np.float32) == 2.0**-24
