"""What programs ask of the system (golden)."""

from __future__ import annotations

import logging

import pytest

from tests.ipu.frontends.poptorch.framework import poptorch, torch


def test_there_is_no_hardware():
    assert not poptorch.ipuHardwareIsAvailable()
    assert poptorch.ipuHardwareVersion() == 0


def test_a_model_knows_that_it_runs_on_the_machine():
    class Asking(torch.nn.Module):
        def forward(self, x):
            answers.append(poptorch.isRunningOnIpu())
            return x

    answers = []
    model = Asking()
    model(torch.ones(1))
    poptorch.inferenceModel(model)(torch.ones(1))
    assert answers == [False, True, True]  # the trace, then the call


@pytest.mark.source("S2-42")
def test_log_levels():
    logger = logging.getLogger("poptorch")
    before = logger.level
    try:
        for name, level in (("DEBUG", 10), ("ERR", 40), (2, 20)):
            poptorch.setLogLevel(name)
            assert logger.level == level
        with pytest.raises(ValueError, match="level='LOUD' is not known; use one of TRACE"):
            poptorch.setLogLevel("LOUD")
    finally:
        logger.setLevel(before)
