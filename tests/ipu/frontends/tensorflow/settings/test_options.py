"""The table of options: names and defaults of the vendor's release (golden)."""

from __future__ import annotations

import pytest

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
