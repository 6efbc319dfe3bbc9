"""Remainders of binary64 against fractions and math (differential)."""

from __future__ import annotations

import math

import numpy as np

from fpsim.kernels.elementwise.remainder import remainders


def test_remainders_are_those_of_ieee_and_c():
    rng = np.random.default_rng(4)
    x = np.ldexp(rng.uniform(1, 2, 400), rng.integers(-40, 900, 400)) * rng.choice((-1, 1), 400)
    y = np.ldexp(rng.uniform(1, 2, 400), rng.integers(-40, 40, 400)) * rng.choice((-1, 1), 400)
    x[:6], y[:6] = [5.0, 7.0, -5.0, 3.0, 0.0, -0.0], [2.0, 2.0, 2.0, 2.0, 3.0, 3.0]
    out = np.zeros(400, np.uint64)
    for nearest, reference in ((True, math.remainder), (False, math.fmod)):
        remainders(x.view(np.uint64), y.view(np.uint64), out, nearest)
        expected = np.array([reference(a, b) for a, b in zip(x, y, strict=True)])
        assert np.array_equal(out, expected.view(np.uint64))
