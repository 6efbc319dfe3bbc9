"""Methods of reduction by member and name (golden)."""

from __future__ import annotations

import pytest

from ipu.frontends.tensorflow.training.reductions import GradientAccumulationReductionMethod as M
from ipu.learn.accumulate import Reduction


def test_members_are_those_of_ipu_learn():
    assert {m.name: m.value for m in M} == {m.name: m.value for m in Reduction}
    assert M.parse(M.MEAN) is M.parse("mean") is M.MEAN
    with pytest.raises(ValueError, match="Cannot parse 3 as one of GradientAccumulationReduct"):
        M.parse(3)
