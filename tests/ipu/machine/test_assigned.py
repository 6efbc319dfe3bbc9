"""Attributes that have another value inside a block (law)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ipu.machine.assigned import Assigned


def test_blocks_nest_and_end_with_what_was_before():
    owner = SimpleNamespace(x=1)
    with Assigned(owner, "x", 2):
        with Assigned(owner, "x", 3):
            assert owner.x == 3
        assert owner.x == 2
    assert owner.x == 1


def test_an_error_inside_passes_and_ends_the_block():
    owner = SimpleNamespace(x=1)
    with pytest.raises(ValueError, match="inside"), Assigned(owner, "x", 2):
        raise ValueError("inside")
    assert owner.x == 1


def test_the_value_before_is_that_of_the_entry():
    owner = SimpleNamespace(x=1)
    block = Assigned(owner, "x", 3)
    owner.x = 2
    with block:
        assert owner.x == 3
    assert owner.x == 2
