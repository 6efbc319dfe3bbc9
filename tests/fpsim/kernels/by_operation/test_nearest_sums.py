"""Chains to nearest by additions of binary64 against additions one by one (differential)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.apply import apply
from fpsim.products.nearest_sums import nearest_sums
from fpsim.records.settings import Settings
from tests.tiers import pick

FORMATS = (fp.BINARY16, fp.BFLOAT16, fp.BINARY32, fp.E5M2, fp.E4M3FN, fp.F143)


def one_by_one(rows, fmt, kahan):
    """Sums of rows by the elementwise kernels; whether each raised INEXACT alone, or None."""
    settings, s, flags = Settings(fmt), rows[:, 0].copy(), np.zeros(len(rows), np.uint8)

    def op(name, x, y):
        raised = np.zeros(len(rows), np.uint8)
        values, _ = apply(name, (x, y), settings, element_flags=raised)
        flags[:] |= raised
        return values

    c = np.zeros_like(s)
    for k in range(1, rows.shape[1]):
        x = np.ascontiguousarray(rows[:, k])
        if not kahan:
            s = op("add", s, x)
            continue
        y = op("subtract", x, c)
        t = op("add", s, y)
        c = op("subtract", op("subtract", t, s), y)
        s = t
    return s, flags


def data(kind, fmt, shape, rng):
    x = rng.standard_normal(shape)
    if kind == "grows":
        x = np.abs(x)
    if kind == "stagnates":
        x = np.where(np.arange(shape[1]) < 40, 1.0, np.abs(x) * fmt.eps)
    if kind == "wide":
        x = x * 2.0 ** rng.integers(fmt.emin, max(fmt.emin + 1, fmt.emax - 12), shape)
    if kind == "cancels":
        x[:, 1::2] = -x[:, ::2][:, : x[:, 1::2].shape[1]] * rng.choice([1, 1.25], shape)[:, 1::2]
    if kind == "whole":
        x = np.round(3 * x)
    if kind == "tiny":
        x = x * 4 * fmt.smallest_subnormal
    if kind == "zeros":
        x = np.copysign(0.0 * x, x)
    return fp.Context(fmt, overflow="saturate").array(x * 1.0).carrier


KINDS = ("normal", "grows", "stagnates", "wide", "cancels", "whole", "tiny", "zeros")


@pytest.mark.parametrize("kahan", [False, True])
@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_values_and_inexact_are_those_of_single_additions(fmt, kahan):
    rng = np.random.default_rng(3)
    lengths = pick((2, 3, 64, 65, 400), (2, 3, 63, 64, 65, 200, 3000), (2, 64, 65, 129, 30_000))
    for kind in KINDS:
        for rows, n in ((r, n) for r in (1, 2, 3, 8, 17) for n in lengths):
            x = data(kind, fmt, (rows, n), rng)
            wanted, flags = one_by_one(x, fmt, kahan)
            got = nearest_sums(x, fmt, kahan=kahan)
            other = nearest_sums(np.asfortranarray(x), fmt, kahan=kahan)
            if (flags & ~np.uint8(1)).any():
                assert got is other is None
                continue
            assert got is not None, (kind, rows, n)
            assert other is not None, (kind, rows, n)
            for values, inexact in (got, other):
                assert np.array_equal(values.view(np.uint32), wanted.view(np.uint32)), (kind, n)
                assert np.array_equal(inexact, flags), (kind, rows, n)


@pytest.mark.parametrize("kahan", [False, True])
@pytest.mark.parametrize("place", [0, 1, 70, 199])
def test_what_is_no_number_is_left_to_others(place, kahan):
    for value in (np.inf, -np.inf, np.nan):
        x = np.ones((3, 200), np.float32)
        x[1, place] = value
        assert nearest_sums(x, fp.BINARY16, kahan=kahan) is None


def test_overflow_is_left_to_others():
    half = fp.BINARY16
    for last, refused in ((31.0, False), (8.0, False), (16.0, True), (32.0, True)):
        x = np.float32([[65504.0 - 0, *([0.0] * 70), last]])
        x[0, 0] = 65504.0 if last < 31 or last > 31 else 65472.0
        assert (nearest_sums(x, half) is None) == refused, last
