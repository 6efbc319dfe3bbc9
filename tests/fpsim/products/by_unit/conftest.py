"""Fixtures of the engines' tests."""

from __future__ import annotations

import pytest

from fpsim.products.by_unit import dispatch as engines


@pytest.fixture
def fast_only(monkeypatch):
    """A product that no fast engine takes is an error."""

    def refuse(*_arguments):
        raise AssertionError("the general kernel ran")

    monkeypatch.setattr(engines, "ENGINES", [*engines.ENGINES[:-1], refuse])
