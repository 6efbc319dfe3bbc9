"""The launcher of the program mnist_pipeline, as a file and as a module."""

from __future__ import annotations

from ipu.experiments.lab.catalogue import catalogue
from tests.experiments.launchers import by_launch, help_text

NAME = "mnist_pipeline"


@by_launch
def test_the_program_is_launched_by_the_tutorial_s_name(launch):
    assert f"Usage: {NAME} " in help_text(NAME, launch)


def test_an_experiment_of_the_same_name_is_another_module():
    assert catalogue()[NAME].room == "ipu.experiments.execution"
