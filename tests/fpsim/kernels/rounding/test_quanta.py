"""Subnormals counted in quanta (differential): the rounding with shifts by each lane's own digits.

Both roundings of a kernel with the generator's words are taken, and the flags; the other one is
compared with the definition, pattern by pattern, in `test_stochastic`.
"""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.elementwise.apply import apply
from fpsim.elementwise.constants import plan
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, E4M3FN, E5M2, F143, Format
from fpsim.records.rounding import SR, SR_EQUAL
from fpsim.records.settings import Settings
from fpsim.state.draws import Draw

DEVICE = SR(bits=13, subnormal_bits=16)
#: Format, rounding, and whether subnormals may be counted in quanta.
CASES = [
    (BINARY16, DEVICE, True), (BINARY16, SR(), False), (BINARY16, SR(5), True),
    (BINARY16, SR(16), True), (BINARY16, SR(20), True), (F143, DEVICE, False),
    (E4M3FN, SR(8), True), (E5M2, SR(23), True), (Format.custom(6, 10), SR(bits=14), True),
    (BFLOAT16, SR(16), True), (BINARY16, SR(5, subnormal_bits=7), False),
    (BINARY16, SR_EQUAL, False), (BINARY16, SR(8, "half"), False),
]


def operands(fmt, rng):
    """Magnitudes of every exponent around the subnormals, with short and long tails, and zeros."""
    exponents = rng.integers(fmt.emin - 40, fmt.emin + 6, 6000)
    digits = rng.integers(0, 1 << 23, 6000) & -(1 << rng.integers(0, 24, 6000))
    x = np.ldexp(1 + digits * 2.0**-23, np.maximum(exponents, -149)) * rng.choice([-1, 1], 6000)
    edges = np.array([fmt.smallest_normal, fmt.smallest_subnormal, fmt.smallest_subnormal / 2])
    edges = np.concatenate([edges, edges * (1 + 2.0**-23), edges * (1 - 2.0**-24), [0.0, -0.0]])
    return np.float32(np.concatenate([x, edges, [2.0**-149, np.inf, np.nan, fmt.max, 3e38]]))


def rounded(operation, xs, settings, shifting, monkeypatch):
    """Bits, flags of all and flags of each, of eight draws, and the loops that computed them."""
    if shifting:  # the choice alone: kernels are kept on disk by their variant
        monkeypatch.setattr(
            "fpsim.elementwise.apply.plan", lambda *which: plan(*which)._replace(in_quanta=False)
        )
    outcomes = []
    for number in range(8):
        raised = np.zeros(xs[0].shape, np.uint8)
        draw = Draw(np.uint64(5), np.uint64(number), None)
        values, flags = apply(operation, xs, settings, element_flags=raised, bits=draw)
        sticky, same = apply(operation, xs, settings, bits=draw)
        assert (sticky.view(np.uint32) == values.view(np.uint32)).all()
        outcomes.append((values.view(np.uint32).tolist(), flags, same, raised.tolist()))
    monkeypatch.undo()
    return outcomes, {call.loop for call in settings.calls.values()}


def check_shifts(operation, xs, first, second, monkeypatch):
    """Two like settings: kernels that count quanta give what others with shifts give."""
    shifted, with_shifts = rounded(operation, xs, first, True, monkeypatch)
    outcomes, in_quanta = rounded(operation, xs, second, False, monkeypatch)
    assert not with_shifts & in_quanta
    assert outcomes == shifted


@pytest.mark.parametrize(("fmt", "rounding", "suitable"), CASES, ids=str)
def test_quanta_give_what_shifts_give(fmt, rounding, suitable, monkeypatch):
    settings = Settings(fmt, rounding)
    assert plan("convert", settings, 32).in_quanta == suitable
    if not suitable:
        return
    xs = [operands(fmt, np.random.default_rng(fmt.bits))]
    check_shifts("convert", xs, Settings(fmt, rounding), settings, monkeypatch)


@pytest.mark.parametrize("subnormals", ["keep", "flush_results", "flush_both"])
def test_products_below_the_normal_numbers(subnormals, monkeypatch):
    rng = np.random.default_rng(3)
    with np.errstate(over="ignore"):
        x = np.float16(operands(BINARY16, rng)).astype(np.float32)
    y = np.float16(np.ldexp(rng.uniform(1, 2, x.size), rng.integers(-14, 3, x.size)))
    xs = [x, y.astype(np.float32)]
    choices = {"rounding": DEVICE, "subnormals": subnormals}
    first, second = Settings(BINARY16, **choices), Settings(BINARY16, **choices)
    check_shifts("multiply", xs, first, second, monkeypatch)


def test_sums_need_no_quanta():
    settings = Settings(BINARY32)
    assert not plan("add", settings, 64).in_quanta
