"""Exact inner products are exact (golden)."""

from __future__ import annotations

from fpsim import BINARY16, Context
from ipu.experiments.sums.exact import inner_products


def test_exact_sums_are_exact():
    half = Context(BINARY16)
    a = half.array([[2.0**15, 2.0**-24, -(2.0**15)]])
    b = half.array([[2.0**15], [2.0**-24], [2.0**15]])
    exact, size = inner_products(a.values, b.values)
    assert exact[0, 0] == 2.0**-48
    assert size[0, 0] == 2.0**31
