"""The one rounding on two grids against its definition (corners), and beside the one by shifts."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.elementwise.constants import mode_number, plan
from fpsim.kernels.rounding.grids import round_normal, round_on_grids
from fpsim.kernels.rounding.round import round_fixed
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, E4M3FN, E5M2, Format
from fpsim.records.rounding import RNE, RTO, Rounding, Up
from fpsim.records.settings import Settings
from tests.fpsim.kernels.on_lanes import on_bits
from tests.fpsim.kernels.rounding.test_round import (
    DETERMINISTIC,
    RNU,
    check_definition,
    near_midpoints,
    rule_of,
)
from tests.tiers import pick

#: Even and odd m, and both signs, that step each its own way.
MIXED = [
    Rounding("odd up", steps=(Up.ABOVE_HALF, Up.ALWAYS)),
    Rounding("even up", steps=(Up.FROM_HALF, Up.ABOVE_HALF)),
    Rounding("to even", steps=(Up.NEVER, Up.ALWAYS), negative_steps=(Up.ALWAYS, Up.NEVER)),
    Rounding("odd down", steps=(Up.NEVER,) * 2, negative_steps=(Up.FROM_HALF, Up.NEVER)),
]
PLACES = [(BINARY16, 32), (E5M2, 64), (BFLOAT16, 32), (E4M3FN, 64), (BINARY32, 64)]
CASES = [(PLACES[i % 2], r) for i, r in enumerate([*DETERMINISTIC, RNU, *MIXED])]
EVERY = [(place, r) for place in PLACES for r in [*DETERMINISTIC, RNU, *MIXED]]


def few_quanta(fmt, width):
    """Magnitudes of zero to nine quanta in steps of a quarter, and their neighbours."""
    carrier = np.dtype(f"f{width // 8}")
    # In steps of the lane's least number, where the format has its subnormals.
    x = np.ldexp(np.arange(36, dtype=carrier), fmt.emin - fmt.precision - 1).astype(carrier)
    around = np.concatenate([x, np.nextafter(x[1:], 0), np.nextafter(x, carrier.type(np.inf))])
    return np.resize(around.view(f"u{width // 8}"), -(-len(around) // 16) * 16)


@pytest.mark.parametrize(("place", "rounding"), pick(CASES, EVERY, EVERY), ids=str)
def test_a_deterministic_mode_rounds_by_its_definition(place, rounding):
    fmt, width = place
    magnitudes = np.concatenate([near_midpoints(fmt, width), few_quanta(fmt, width)])

    def rounded(mode, a, negative, rule):
        return round_on_grids(mode, a, negative, rule, width)

    check_definition(rounded, rounding, fmt, width, magnitudes)


@pytest.mark.parametrize("rounding", [RNE, RTO], ids=repr)
@pytest.mark.parametrize("fmt", [E4M3FN, Format.custom(5, 22)], ids=str)
def test_both_roundings_agree_on_magnitudes_of_every_exponent(fmt, rounding):
    rng = np.random.default_rng(1)
    a = rng.integers(0, 0x7F800000, 1 << 14, np.uint32) & -(1 << rng.integers(0, 22, 1 << 14))
    a, mode = a.astype(np.uint32), mode_number(rounding)
    constants = plan("convert", Settings(fmt, rounding), 32).constants
    results = [
        on_bits(lambda a, f=f: f(mode, a, a != a, rule_of(constants, a), 32), a)
        for f in (round_fixed, round_on_grids)
    ]
    small = a < np.float32(fmt.smallest_normal).view(np.uint32)
    assert small.any()
    assert np.array_equal(*results)
    normal = on_bits(lambda a: round_normal(mode, a, a != a, rule_of(constants, a)), a)
    assert np.array_equal(normal[~small], results[0][~small])
