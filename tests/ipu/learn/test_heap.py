"""Limits of the C library's memory: set once, never against what a user has said (golden)."""

from __future__ import annotations

import ctypes
import sys

import pytest

from ipu.learn import heap


@pytest.fixture(autouse=True)
def forgetful():
    heap.keep_freed_memory.cache_clear()
    yield
    heap.keep_freed_memory.cache_clear()


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
