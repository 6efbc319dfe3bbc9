"""The program stochastic_rounding: golden (defaults, layers, messages)."""

from __future__ import annotations

import click
import pytest

from fpsim import get_threads, set_threads
from ipu.experiments.cli import run as command_line
from ipu.experiments.programs import stochastic_rounding
from ipu.experiments.programs.options import ProgramOptions, options
from ipu.feed.data import digits
from ipu.learn.loss_scale import LEARNING_RATE, StaticLossScale
from ipu.learn.optim import SGD
from ipu.machine import FpCtl


def asked(*arguments: str) -> ProgramOptions:
    """The options that a command line gives."""
    results = []
    command = options(lambda options: results.append(options))
    assert command_line(click.command()(command), arguments, "test") == 0
    return results[0]


def bits(trainer):
    return {name: v.array.values.tobytes() for name, v in trainer.variables.items()}


@pytest.mark.source("S4-52")
def test_stochastic_rounding_is_on_unless_disabled():
    for stochastic in (True, False):
        trainer = stochastic_rounding.build("float16", 8, stochastic, asked())
        assert trainer.device.control == FpCtl(esr=stochastic)


@pytest.mark.source("S4-34")
def test_the_resnet_divides_the_rate_of_momentum_by_the_loss_scale():
    trainer = stochastic_rounding.build("float16", 8, True, asked("--loss-scaling-factor", "64"))
    assert trainer.loss_scale == StaticLossScale(64.0, LEARNING_RATE)
    assert trainer.optimizer == SGD(0.01, momentum=0.9)
    assert str(trainer.policy) == "p=f16,c=f16,part=f32"


def test_one_thread_or_two_train_the_same_bits():
    results = []
    before = get_threads()
    for threads in (1, 2):
        set_threads(threads)
        try:
            trainer = stochastic_rounding.build("float16", 8, True, asked("--learning-rate", "1"))
            subset = digits((32, 32, 3)).learn[:2]
            trainer.step(subset.values, subset.labels)
        finally:
            set_threads(before)
        results.append(bits(trainer))
    assert results[0] == results[1]


def test_the_resnet_has_the_layers_that_its_depth_says():
    for depth, blocks in ((8, 1), (14, 2)):
        trainer = stochastic_rounding.build("float16", depth, True, asked())
        trainer.forward(digits((32, 32, 3)).learn[:1].values)
        kernels = [n for n, v in trainer.variables.items() if len(v.shape) == 4]
        assert len([n for n in kernels if "skip" not in n]) + 1 == depth
        assert len([n for n in kernels if "skip" in n]) == 2
        assert sum("norm/gamma" in n for n in trainer.variables) == 3 * blocks


@pytest.mark.source("S4-51")
@pytest.mark.parametrize("depth", ["7", "2", "9", "0"])
def test_a_depth_that_is_not_6n_and_2_ends_with_the_tutorial_s_message(depth, capsys):
    assert stochastic_rounding.main(["float16", depth]) == 1
    assert capsys.readouterr().out.startswith(
        "Please choose a number of layers of the form 6N + 2 for a whole number N, such as 8, 14,"
    )
