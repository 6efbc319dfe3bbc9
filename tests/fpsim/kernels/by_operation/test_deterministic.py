"""Chains of the fast kernel against exact fractions: midpoints and a tiny accumulator (corners).

acc + x y with x y exactly between two numbers of the format is decided by the sign of the least
accumulator: without a rounding to odd before the last one, half of these come out wrong.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.constants import mode_number
from fpsim.judge import oracle
from fpsim.linalg import rounded_matmul
from fpsim.products.by_operation import fast
from fpsim.products.by_operation.bounds import find_lane, measure
from fpsim.products.by_operation.rules import mac_rules
from fpsim.records.settings import Settings
from tests.tiers import reaches

NARROW = [fp.BINARY16, fp.BFLOAT16, fp.TF32, fp.E5M2, fp.E4M3FN, fp.E3M2FN, fp.F143, fp.F152]
MODES = [fp.RNE, fp.RNA, fp.RNZ, fp.RTZ, fp.RTP, fp.RTN, fp.RAZ, fp.RTO]


@pytest.fixture(autouse=True)
def _without_halves(monkeypatch):
    """Lanes of 32 bits are what is tested, also where the processor has numbers of 16 bits."""
    monkeypatch.setattr(fast, "HAS_HALF", False)


def midpoints(p: int) -> list[tuple[int, int]]:
    """Factors of p digits whose product has p + 1, the last one a 1; even and odd neighbours."""
    pairs: dict[int, tuple[int, int]] = {}
    for n in range(2**p + 1, 2 ** (p + 1), 2):
        x = next((x for x in range(3, 2**p, 2) if n % x == 0 and n // x < 2**p), None)
        if x is not None:
            pairs.setdefault(n % 4, (x, n // x))
        if len(pairs) == 2:
            break
    return list(pairs.values())


def test_the_issue_that_no_quick_test_saw():
    bf16 = fp.Context(fp.BFLOAT16)
    row, column = bf16.array([[2.0**-40, 7.0]]), bf16.array([[-(2.0**-40)], [37.0]])
    assert float(rounded_matmul(row, column, fused=True).values[0, 0]) == 258


#: Every mode in one format, and to nearest in each: pairs are kernels, which the deep tier has.
CASES = [
    (fmt, rounding)
    for fmt in NARROW
    for rounding in MODES
    if reaches("deep") or fmt == fp.BINARY16 or rounding == fp.RNE
]


def is_fused_too(rounding: fp.Rounding) -> bool:
    """Modes of fused chains and of larger accumulators, which have kernels of their own.

    The quick tier has two directions of the processor.
    """
    return reaches("full") or rounding in (fp.RNE, fp.RTN)


@pytest.mark.parametrize(("fmt", "rounding"), CASES, ids=str)
def test_a_product_on_a_midpoint_and_a_tiny_accumulator(fmt, rounding):
    """A fast kernel computes each: of numbers that may be subnormal, or of larger ones alone."""
    least = fmt.smallest_subnormal
    cases = [(s * x, y) for x, y in midpoints(fmt.precision) for s in (1, -1) if x * y < fmt.max]
    assert len(cases) >= 2
    larger = {max(least, 2.0**-6), max(least, 2.0**-13)} if is_fused_too(rounding) else set()
    tiny = [s * t for t in {least} | larger for s in (1, -1)]
    operands = fp.Context(fmt)
    for acc, (x, y) in product(tiny, cases):
        a, b = operands.array([[acc, float(x)]]), operands.array([[1.0], [float(y)]])
        if is_fused_too(rounding):
            context = fp.Context(fmt, rounding=rounding)
            result = rounded_matmul(a, b, context=context, fused=True)
            exact = Fraction(acc) + x * y
            code, _ = oracle.round_exact(exact, fmt, rounding)
            assert int(result.codes()[0, 0]) == code, (acc, x, y)
        rounded, _ = oracle.round_exact(Fraction(x * y), fmt, rounding)
        total = Fraction(acc) + oracle.decode(rounded, fmt).value
        code, _ = oracle.round_exact(total, fmt, rounding)
        context = fp.Context(fmt, rounding=rounding)
        assert int(rounded_matmul(a, b, context=context).codes()[0, 0]) == code, (acc, x, y)


@pytest.mark.parametrize("fmt", NARROW, ids=str)
def test_these_operands_reach_the_fast_kernel(fmt):
    a, b = np.array([[2.0**-6, 7.0]], fmt.carrier), np.array([[1.0], [5.0]], fmt.carrier)
    product_ = measure(mac_rules(Settings(fmt), True), a, b)
    assert product_ is not None
    assert find_lane(product_) is not None
    assert mode_number(fp.RNE) == mode_number(fp.Rounding("RNE"))
