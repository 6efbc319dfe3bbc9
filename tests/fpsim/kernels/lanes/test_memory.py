"""Loads that widen, stores that narrow, rows that become columns, copies that repeat (law)."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from fpsim.kernels.lanes import memory as m
from fpsim.kernels.lanes.vectors import as_bits


def test_floats_are_widened_exactly_and_narrowed_back():
    @njit
    def loop(x, wide, back):
        like = m.load(wide, 0)
        for i in range(0, 16, 8):
            bits = m.load_word(wide, i, like)
            value = m.load_float(x, i, like)
            m.store_float(wide, i, m_bits(value, bits))
            m.store_float(back, i, m_bits(m.load_float(wide, i, like), bits))

    @njit
    def m_bits(value, bits):
        return as_bits(value)

    x = np.array([0.1, -2.5, 2.0**-149, 3e38] * 4, np.float32)
    wide, back = np.zeros(16), np.zeros(16, np.float32)
    loop(x, wide, back)
    assert np.array_equal(wide, x.astype(float))
    assert np.array_equal(back, x)


@njit
def few(x, out, wide, n):
    """The first n of x into out, and all lanes that were read into `wide`."""
    like = m.load(wide, 0)
    value = m.load_few(x, 3, n, like)
    m.store_float(wide, 0, as_bits(value))
    m.store_few(out, 1, n, as_bits(value))


@pytest.mark.parametrize("lanes", [8, 16])
def test_few_floats_are_moved_and_those_beside_them_are_not(lanes):
    """The array ends with the last float that is read or written."""
    for n in range(1, lanes):
        x, out = np.arange(1, n + 4, dtype=np.float32), np.full(lanes + 1, -7, np.float32)
        wide = np.full(lanes, 9, f"f{64 // lanes}")
        few(x, out, wide, n)
        assert wide.tolist() == [*range(4, n + 4), *[0] * (lanes - n)]
        assert out.tolist() == [-7, *range(4, n + 4), *[-7] * (lanes - n)]


@pytest.mark.parametrize("lanes", [8, 16])
def test_rows_become_columns(lanes):
    @njit
    def loop(x, like):
        m.transpose(m.pointer(x), 3, m.load(like, 0))

    x = np.arange(3 + lanes * lanes, dtype=np.float32)
    expected = x.copy()
    expected[3:] = x[3:].reshape(lanes, lanes).T.reshape(-1)
    loop(x, np.zeros(lanes, f"f{64 // lanes}"))
    assert np.array_equal(x, expected)


def test_low_bits_are_stored_and_items_spread():
    @njit
    def loop(x, out, spread):
        m.store_low(out, 0, m.load(x, 0))
        m.store(spread, 0, m.splat_item(x, 3))

    x = (np.arange(16) * 0x01010101).astype(np.uint32)
    out, spread = np.zeros(16, np.uint8), np.zeros(16, np.uint32)
    loop(x, out, spread)
    assert np.array_equal(out, np.arange(16))
    assert set(spread.tolist()) == {0x03030303}


def test_copies_past_the_end_repeat_the_last_element():
    @njit
    def loop(x, out):
        m.copy_items(m.pointer(out), m.pointer(x), 2, x.shape[0] - 1, out.shape[0])

    x, out = np.arange(5, dtype=np.float32), np.zeros(8, np.float32)
    loop(x, out)
    assert out.tolist() == [2, 3, 4, 4, 4, 4, 4, 4]
