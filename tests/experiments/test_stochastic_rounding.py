"""The launcher of the program stochastic_rounding, as a file and as a module."""

from __future__ import annotations

from ipu.experiments.lab.catalogue import catalogue
from tests.experiments.launchers import by_launch, help_text

NAME = "stochastic_rounding"


@by_launch
def test_the_program_is_launched_by_the_tutorial_s_name(launch):
    assert f"Usage: {NAME} " in help_text(NAME, launch)


def test_it_is_no_experiment():
    assert NAME not in catalogue()
