"""Which sums run as chains of binary64, and what they publish (corners)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.products.nearest_sums import is_nearest, nearest_sums
from fpsim.records.settings import Settings
from tests.threads import on_threads


@pytest.mark.parametrize(
    ("settings", "order", "expected"),
    [
        (Settings(fp.BINARY16), "sequential", True), (Settings(fp.BINARY16), "kahan", True),
        (Settings(fp.BINARY16), "pairwise", False), (Settings(fp.BINARY32), "kahan", True),
        (Settings(fp.BINARY16, fp.RTZ), "sequential", False),
        (Settings(fp.BINARY16, fp.SR(4)), "kahan", False),
        (Settings(fp.BINARY16, subnormals="flush_both"), "sequential", False),
        (Settings(fp.Format.custom(8, 26)), "sequential", False),
    ],
)
def test_which_sums_these_are(settings, order, expected):
    assert is_nearest(settings, order) == expected


def test_threads_do_not_show():
    x = np.random.default_rng(1).standard_normal((64, 5000)).astype(np.float16).astype(np.float32)
    one, two = (on_threads(n, lambda: nearest_sums(x, fp.BINARY16)) for n in (1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_flags_are_counted_by_output():
    context = fp.Context(fp.BINARY16, count=True)
    x = context.array([[2048.0, 1.0, 1.0], [1.0, 2.0, 3.0]])
    context.counts.clear()
    context.sum(x, 1)
    (row,) = dict(context.counts.items()).values()
    assert row["INEXACT"] == 1
