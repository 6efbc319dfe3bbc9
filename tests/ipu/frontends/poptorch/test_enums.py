"""Names of choices: the numbers that PopTorch prints (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import poptorch


@pytest.mark.source("S2-23", "S2-34")
def test_choices_have_the_numbers_that_are_printed():
    assert [mode.value for mode in poptorch.OutputMode] == [0, 1, 2, 3, 4]
    assert poptorch.OutputMode.All.value == 2
    assert poptorch.ReductionType.Mean.value == 1
    assert poptorch.MeanReductionStrategy.Post.value == 1
    assert poptorch.AutoStage.SameAsIpu.value == 0
    assert [mode.value for mode in poptorch.DataLoaderMode] == [0, 1, 2]
