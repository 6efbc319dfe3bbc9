"""The rule of a rounding reaches the lanes field by field (law)."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from fpsim.elementwise.constants import plan
from fpsim.kernels.lanes.memory import store
from fpsim.kernels.rounding.rule import FIELDS, RoundingRule, spread
from fpsim.records.formats import BINARY16
from fpsim.records.settings import Settings


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
