"""Options and their enumerations: the vendor's names and defaults; notes (golden, law)."""

from __future__ import annotations

import warnings

import pytest

from ipu.frontends.tensorflow.settings.choices import StochasticRoundingBehaviour
from ipu.frontends.tensorflow.settings.notes import forget, note
from ipu.frontends.tensorflow.settings.options import CATEGORIES, OPTIONS


def test_every_option_lies_in_a_known_category():
    assert {name.rpartition(".")[0] for name in OPTIONS} == {"", *CATEGORIES}


@pytest.mark.source("graphcore/tensorflow, tensorflow/python/ipu/config.py")
@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("io_tiles.available_memory_proportion", 0.9),
        ("optimizations.math.dot_strength", True),
        ("optimizations.minimum_remote_tensor_size", 128),
        ("optimizations.merge_infeed_io_copies", True),
        ("ipu_model.version", "ipu2"),
        ("scheduling.maximum_scheduler_search_space_size", 64),
        ("auto_select_ipus", []),
    ],
)
def test_defaults(name, default):
    assert OPTIONS[name].default == default
    OPTIONS[name].check_type(default)


def test_members_by_number_and_by_switch():
    assert [member.name for member in StochasticRoundingBehaviour] == [
        "OFF", "ON", "REPLICA_IDENTICAL_ONLY",
    ]
    off, on = (StochasticRoundingBehaviour.from_bool(value) for value in (False, True))
    assert (off, on) == (StochasticRoundingBehaviour(0), StochasticRoundingBehaviour(1))


def test_a_note_comes_once_until_it_is_forgotten():
    forget()
    with pytest.warns(RuntimeWarning, match="one"):
        note("one")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        note("one")
    with pytest.warns(RuntimeWarning, match="two"):
        note("two")
    forget()
    with pytest.warns(RuntimeWarning, match="one"):
        note("one")
