"""Strict dictionaries of options (golden, law)."""

from __future__ import annotations

import copy

import pytest

from tests.ipu.frontends.poptorch.framework import torch

from ipu.frontends.poptorch import dictionary  # isort: skip


def test_only_known_names_of_their_own_types_are_set():
    options = dictionary.OptionsDict(number=1, switch=False)
    options.set(number=2)
    assert (options.number, options("switch")) == (2, False)
    assert options.toDict() == {"number": 2, "switch": False}
    with pytest.raises(ValueError, match="Invalid option size, valid options are"):
        options.set(size=1)
    with pytest.raises(TypeError, match=r"Unexpected type str for option number\. Expected int"):
        options.set(number="1")
    with pytest.raises(TypeError, match="Unexpected type bool for option number"):
        options.set(number=True)
    with pytest.raises(AttributeError, match="options are set by calls"):
        options.number = 3
    with pytest.raises(AttributeError, match="Invalid option size"):
        options.size  # noqa: B018


def test_new_options_can_be_created_and_deleted():
    options = dictionary.OptionsDict()
    options.createOrSet(x=1)
    assert options.exists("x")
    assert repr(options) == "OptionsDict(x=1)"
    options.deleteIfExists("x")
    options.deleteIfExists("x")
    assert not options.exists("x")


def test_frozen_options_refuse_changes_and_their_copies_take_them():
    options = dictionary.OptionsDict(x=[1])
    options.freeze()
    with pytest.raises(AttributeError, match="Can't modify frozen Options: x"):
        options.set(x=[2])
    twin = copy.deepcopy(options)
    assert twin.toDict() == options.toDict()
    twin.set(x=[2])
    assert options.x == [1]


def test_what_has_no_effect_says_so_once():
    with pytest.warns(UserWarning, match="test_option is accepted and has no effect here: why"):
        dictionary.once("test_option", "why")
    dictionary.once("test_option", "why")
    assert torch.ones(1) == 1  # the front end is there


def test_numbers_and_switches_are_checked():
    for value in (True, 1.0, "1"):
        with pytest.raises(TypeError, match="use a whole number, 1 or more"):
            dictionary.check_number("n", value)
    with pytest.raises(ValueError, match=r"n\(0\): use 1 or more"):
        dictionary.check_number("n", 0)
    with pytest.raises(TypeError, match=r"on\(1\): use True or False"):
        dictionary.check_bool("on", 1)
