"""Chains of additions and exact sums against fractions, at midpoints (corners)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim.judge import oracle
from fpsim.kernels.by_operation.sums import LIMBS, add_exactly, odd_codes
from tests.tiers import reaches

NARROW = [fp.BINARY16, fp.BFLOAT16, fp.TF32, fp.E5M2, fp.E4M3FN, fp.F152]
MODES = [fp.RNE, fp.RNA, fp.RNZ, fp.RTZ, fp.RTP, fp.RTN, fp.RAZ, fp.RTO]


#: The quick tier has every mode in one format, and to nearest in each: pairs are kernels.
CASES = [
    (fmt, rounding)
    for fmt in NARROW
    for rounding in MODES
    if reaches("full") or fmt == fp.BINARY16 or rounding == fp.RNE
]


@pytest.mark.parametrize(("fmt", "rounding"), CASES, ids=repr)
def test_a_sum_on_a_midpoint_and_a_tiny_term(fmt, rounding):
    """2**p + 2 n + 1 is between two numbers of p digits; the least term decides an exact sum."""
    p, least = fmt.precision, fmt.smallest_subnormal
    rows = [
        [s * (2.0**p + 2 * n), s * 1.0, t * least]
        for n in (0, 1) for s in (1, -1) for t in (-1, 0, 1)
    ]
    context = fp.Context(fmt, rounding=rounding)
    x = fp.Context(fmt).array(rows)
    for row, code in zip(rows, context.sum(x, axis=1).codes(), strict=True):
        terms = [Fraction(t) for t in row]
        first, _ = oracle.round_exact(terms[0] + terms[1], fmt, rounding)
        total = oracle.decode(first, fmt).value + terms[2]
        assert int(code) == oracle.round_exact(total, fmt, rounding)[0], row
    if not (reaches("full") or rounding in (fp.RNE, fp.RTN)):  # a kernel more for each
        return
    for row, code in zip(rows, context.sum(x, axis=1, order="exact").codes(), strict=True):
        total = sum(map(Fraction, row))
        assert int(code) == oracle.round_exact(total, fmt, rounding)[0], row


def test_exact_sums_are_rounded_to_odd():
    tiny = 2.0**-1074
    rows = np.array([
        [1.0, tiny, 0.0], [1.0, -tiny, 0.0], [-1.0, tiny, tiny], [2.0**1000, tiny, -(2.0**1000)],
        [1.0, 2.0**-52, 2.0**-60], [3.0, -3.0, 0.0], [2.0**1023, 2.0**970, 2.0**969],
    ])
    sums = np.zeros(len(rows), np.int64)
    limbs = np.zeros((len(rows), LIMBS), np.int64)
    for part in np.split(rows.view(np.int64), [1], axis=1):  # a sum goes on from call to call
        add_exactly(np.ascontiguousarray(part), limbs)
    odd_codes(limbs, sums)
    for row, actual in zip(rows, sums.view(np.float64), strict=True):
        total = sum(map(Fraction, row))
        if Fraction(float(actual)) != total:
            assert int(np.float64(actual).view(np.uint64)) & 1 == 1
            beside = [Fraction(float(np.nextafter(actual, to))) for to in (-np.inf, np.inf)]
            assert beside[0] < total < beside[1]
        else:
            assert actual == float(total)
    assert sums[3] == 1  # the least subnormal, after the large numbers cancelled
