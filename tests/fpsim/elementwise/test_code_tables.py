"""Functions read from tables of all codes: values, flags and random bits of the function's steps.

Exhaustive over binary16 and bfloat16.
"""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BFLOAT16, BINARY16, E5M2, RTP, SR, Context
from fpsim.elementwise import elementary
from fpsim.elementwise.code_tables import all_values, has_index, tabulate
from fpsim.records.settings import Settings
from fpsim.state.draws import NO_DRAW, Draw
from tests.tiers import pick

NAMES = ["exp", "log", "tanh", "sigmoid", "rsqrt", "erf"]
CHOICES = [
    {}, {"rounding": RTP}, {"rounding": SR(13)}, {"nan": "x86"},
    {"subnormals": "flush_both", "quiet_nan_raises": True, "overflow": "saturate"},
    {"subnormals": "flush_both", "rounding": SR(), "divide_by_zero": "nan"},
]
PAIRS = pick(
    [(name, CHOICES[i % len(CHOICES)]) for i, name in enumerate(NAMES)]
    + [("log", CHOICES[4]), ("rsqrt", CHOICES[5]), ("exp", {}), ("exp", CHOICES[2])],
    *[[(name, choices) for name in NAMES for choices in CHOICES]] * 2,
)


def evaluated(name, x, settings):
    draw = NO_DRAW
    if settings.rounding.stochastic:
        draw = Draw(np.uint64(3), np.uint64(5), None, 0)
    flags = np.zeros(x.shape, np.uint8)
    values, joined = elementary.evaluate(name, [x], settings, element_flags=flags, bits=draw)
    return values.view(np.uint32), flags, joined


@pytest.mark.parametrize("fmt", [BINARY16, BFLOAT16], ids=str)
@pytest.mark.parametrize(("name", "choices"), PAIRS)
def test_a_table_has_the_values_and_flags_of_the_steps(name, choices, fmt, monkeypatch):
    x = all_values(fmt)
    settings = Settings(fmt, **choices)
    values, flags, joined = evaluated(name, x, settings)
    keeping = elementary._keeping_infinities(settings)
    assert any(key[:2] == (name, -1) for key in keeping.calls)
    monkeypatch.setattr(elementary, "_table_of", lambda *_: None)
    computed, its_flags, its_joined = evaluated(name, x, settings)
    np.testing.assert_array_equal(values, computed)
    np.testing.assert_array_equal(flags, its_flags)
    assert joined == its_joined == np.bitwise_or.reduce(flags)


def test_any_shape_and_order_and_memory_for_results():
    context = Context(BINARY16)
    many = context.array(np.linspace(-2, 2, 9000))
    expected = context.exp(many).values
    x = context.array(np.linspace(-2, 2, 9000).reshape(90, 100))
    np.testing.assert_array_equal(context.exp(x.T).values, expected.reshape(90, 100).T)
    assert context.exp(x[:0]).shape == (0, 100)
    assert float(context.exp(context.array(1.0)).values) == 2.71875
    target = context.zeros((90, 200))[:, ::2]
    context.exp(x, out=target)
    np.testing.assert_array_equal(target.values, expected.reshape(90, 100))
    context.exp(x, out=x)
    np.testing.assert_array_equal(x.values, expected.reshape(90, 100))


def test_formats_whose_codes_are_not_the_first_bits_of_carriers_have_none():
    assert has_index(BINARY16)
    assert has_index(BFLOAT16)
    assert not has_index(E5M2)


def test_marks_of_all_elements_are_joined():
    x = all_values(BINARY16)
    marks = (x == 2.0) * np.uint8(4) | (x == 3.0) * np.uint8(1)
    table = tabulate(BINARY16, -x, marks)
    out = np.empty(3, np.float32)
    assert table.read(np.float32([2.0, 1.0, 3.0]), out) == 5
    assert out.tolist() == [-2.0, -1.0, -3.0]
    assert table.read(np.float32([1.0, 1.0, 1.0]), out) == 0
