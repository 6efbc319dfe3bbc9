"""Limits of the C library's memory, set once and never against what a user has said; pages that
are kept (golden, law).
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import pytest

from ipu.ops import heap
from ipu.ops.heap import Pages


@pytest.fixture(autouse=True)
def forgetful():
    limit = heap.PAGES.limit
    heap.keep_freed_memory.cache_clear()
    yield
    heap.keep_freed_memory.cache_clear()
    heap.PAGES.limit = limit


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_the_c_library_is_told(monkeypatch):
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert heap.keep_freed_memory() == hasattr(ctypes.CDLL(None), "mallopt")


def test_variables_of_the_user_stand(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    assert not heap.keep_freed_memory()


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not heap.keep_freed_memory()


def address(array):
    return array.ctypes.data


def test_freed_pages_serve_arrays_of_their_size_alone():
    pages = Pages(limit=1 << 24)
    x, other = (pages.array((n, 1000), np.uint16) for n in (40, 50))
    first = address(x)
    assert first % mmap.PAGESIZE == 0
    del x
    wider = pages.array((45, 1000), np.uint16)
    assert address(wider) != first
    del other
    x = pages.array((40, 500), np.uint32)
    assert x.shape == (40, 500)
    assert x.dtype == np.uint32
    x[...] = 7
    assert x.min() == x.max() == 7


def test_pages_live_as_long_as_the_last_view_of_them():
    pages = Pages(limit=1 << 24)
    x = pages.array((10000,), np.float32)
    first, tail = address(x), x[5000:].view(np.uint32)
    del x
    assert address(pages.array((10000,), np.float32)) != first
    tail[...] = 3
    del tail
    assert first in {address(x) for x in [pages.array((10000,), np.float32) for _ in range(2)]}


def test_kept_pages_are_no_more_than_were_in_use_at_once_and_no_more_than_the_limit():
    def kept(pages):
        return sum(map(len, pages._free))

    size = 16 * mmap.PAGESIZE
    pages, without, tight = Pages(limit=1 << 30), Pages(), Pages(limit=size)
    for figure, expected in (pages, 2 * size), (without, 0), (tight, size):
        both = [figure.array((size,), np.uint8) for _ in range(2)]
        del both
        assert kept(figure) == expected
    # In use at once were two: a third size takes the place of one of them.
    x = pages.array((size - mmap.PAGESIZE,), np.uint8)
    assert kept(pages) == size
    del x
    pages.give_back()
    assert kept(pages) == 0


def test_few_bytes_take_no_pages():
    pages = Pages(limit=1 << 20)
    assert pages.array((10, 10), np.uint16).flags.owndata
    assert pages.array((0,), np.uint16).size == 0


def test_programs_decide_whether_pages_are_kept(monkeypatch):
    heap.PAGES.limit = 0
    heap.keep_freed_memory()
    assert heap.PAGES.limit == heap._KEPT
