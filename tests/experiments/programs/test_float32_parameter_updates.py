"""The program float32_parameter_updates: golden (defaults)."""

from __future__ import annotations

import click
import pytest

from ipu.experiments.cli import run as command_line
from ipu.experiments.programs import float32_parameter_updates
from ipu.experiments.programs.options import ProgramOptions, options
from ipu.learn.optim import Adam
from ipu.machine import FpCtl


def asked(*arguments: str) -> ProgramOptions:
    """The options that a command line gives."""
    results = []
    command = options(lambda options: results.append(options))
    assert command_line(click.command()(command), arguments, "test") == 0
    return results[0]


@pytest.mark.source("S4-42")
@pytest.mark.source("S4-39")
def test_mixed_keeps_single_parameters_and_arms_every_exception():
    trainer = float32_parameter_updates.build("mixed", asked("--use-float16-partials"))
    assert str(trainer.policy) == "p=f32,c=f16,part=f16"
    assert trainer.device.control == FpCtl(inv=True, div0=True, oflo=True, nanoo=True)
    assert trainer.optimizer == Adam(0.01, epsilon=1e-4)
    single = float32_parameter_updates.build("float32", asked("--use-float16-partials"))
    assert str(single.policy) == "p=f32,c=f32,part=f32"
