"""The vendor's package of poprun's strategy (golden)."""

from __future__ import annotations

from tests.ipu.frontends.tensorflow.framework import ipu


def test_the_strategy_is_found_by_all_its_names():
    from tensorflow.python.ipu.distributed import popdist_strategy as by_package
    from tensorflow.python.ipu.distributed.popdist_strategy import PopDistStrategy

    from ipu.frontends.tensorflow.workers import distributed

    assert by_package.PopDistStrategy is PopDistStrategy
    assert ipu.distributed.popdist_strategy.PopDistStrategy is PopDistStrategy
    assert distributed.__all__ == ["popdist_strategy"]
