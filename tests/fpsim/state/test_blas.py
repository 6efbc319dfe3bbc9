"""numpy's BLAS on one thread, and on as many as before afterwards (law)."""

from __future__ import annotations

import ctypes

import pytest

from fpsim.state import blas
from fpsim.state.blas import OneBlasThread
from tests.blas import BlasLibrary


@pytest.fixture
def library(monkeypatch):
    fake = BlasLibrary(4)
    monkeypatch.setattr(blas, "_control", lambda: fake)
    return fake


def test_inside_there_is_one_thread_and_afterwards_there_are_as_many_as_before(library):
    with OneBlasThread():
        assert library.threads == 1
    assert library.threads == 4


def test_an_error_puts_them_back(library):
    with pytest.raises(KeyError), OneBlasThread():
        raise KeyError
    assert library.threads == 4


def test_the_inner_of_two_changes_nothing(library):
    with OneBlasThread(), OneBlasThread():
        pass
    assert library.told == [1, 4]


def test_another_blas_keeps_its_threads(monkeypatch):
    def without(path):
        return object()

    blas._control.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", without)
    try:
        assert blas._control() is None
        with OneBlasThread():
            pass
    finally:
        blas._control.cache_clear()


def test_the_library_of_numpy_wheels_is_found():
    control = blas._control()
    if control is None:
        pytest.skip("numpy has no OpenBLAS here")
    threads = control.get()
    with OneBlasThread():
        assert control.get() == 1
    assert control.get() == threads
