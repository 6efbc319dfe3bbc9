"""Launchers of programs by the tutorials' names, as files and as modules (golden)."""

from __future__ import annotations

import pytest

from ipu.experiments.lab.catalogue import catalogue
from tests.experiments.launchers import by_launch, help_text

NAMES = ("float32_parameter_updates", "ipuestimator_fp16", "mnist_pipeline", "stochastic_rounding")


@by_launch
@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_launched_by_the_tutorial_s_name(name, launch):
    assert f"Usage: {name} " in help_text(name, launch)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "mnist_pipeline"])
def test_a_program_is_no_experiment(name):
    assert name not in catalogue()


def test_an_experiment_of_the_same_name_is_another_module():
    assert catalogue()["mnist_pipeline"].room == "ipu.experiments.execution"
