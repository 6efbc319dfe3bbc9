"""Integers to odd and back (corners)."""

from __future__ import annotations

import numpy as np

from fpsim.kernels.elementwise.integers import magnitudes_to_odd, whole_numbers


def test_magnitudes_of_more_than_53_digits_become_odd():
    n = np.array([0, 1, 2**53, 2**53 + 1, 2**54 + 1, 2**63 + 1, 2**64 - 1], np.uint64)
    out = np.zeros(len(n))
    magnitudes_to_odd(n, np.zeros(len(n), bool), out)
    exact = [int(v) == int(f) for v, f in zip(n, out, strict=True)]
    assert exact == [True, True, True, False, False, False, False]
    assert out[4] == 2**54 + 4  # 53 digits, the last one odd
    assert all(int(b) & 1 for b in out.view(np.uint64)[3:])
    magnitudes_to_odd(n, np.ones(len(n), bool), out)
    assert (np.signbit(out)).all()


def test_whole_numbers_out_of_range_are_invalid():
    x = np.array([1.5, 2.0, 127.6, -128.0, np.nan, np.inf])
    whole = np.array([2.0, 2.0, 128.0, -128.0, np.nan, np.inf])
    out, flags = np.zeros(6, np.int8), np.zeros(6, np.uint8)
    whole_numbers(x, whole, -128.0, 128.0, -128, out, flags)
    assert out.tolist() == [2, 2, -128, -128, -128, -128]
    assert flags.tolist() == [1, 0, 16, 0, 16, 16]
