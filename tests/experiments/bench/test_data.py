"""Data of the benchmarks are what they say (statistical, fixed seed)."""

from __future__ import annotations

import numpy as np

from ipu.experiments.bench.data import make


def test_mixed_data_is_what_it_says():
    x = make("mixed", 200_000)
    size = np.abs(x.astype(np.float64))
    assert x.dtype == np.float32
    assert np.isfinite(x).all()
    # N(0,1) alone has 1.6e-5 below 2**-16; the log-uniform 40 % put 12/45 of theirs there.
    assert 0.09 < (size < 2.0**-16).mean() < 0.13
    assert 0.02 < (size > 2.0**13).mean() < 0.06
    np.testing.assert_array_equal(x, make("mixed", 200_000))
