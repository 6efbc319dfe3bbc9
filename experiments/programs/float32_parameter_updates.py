"""A convolutional network on Fashion-MNIST with parameters stored and updated in binary32.

Source    Graphcore's TensorFlow 1 tutorial on half precision, float32_parameter_updates.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ipu.experiments.commands.options import bad_input
from ipu.experiments.programs.options import ProgramOptions, options

if TYPE_CHECKING:
    from ipu.learn.train import Trainer


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("precision", type=click.Choice(["mixed", "float32"]))
@options
def command(precision: str, options: ProgramOptions) -> int:
    """Train a convolutional network on Fashion-MNIST; mixed computes in binary16."""
    from ipu.experiments.programs.loop import TrainingLoop, run
    from ipu.feed.data import fashion_mnist

    with bad_input():
        data = options.data(fashion_mnist, (28, 28, 1))
        trainer = build(precision, options)
        loop = TrainingLoop(f"Fashion-MNIST network in {precision}", trainer, data, options)
    return run(loop)


def build(precision: str, options: ProgramOptions) -> Trainer:
    """The training, with every exception armed and NaN on overflow.

    The policy's custom getter keeps the parameters in binary32; gradients are divided by the loss
    scale there. Adam's usual epsilon, 1e-8, would underflow in binary16.
    """
    from fpsim.records.formats import BINARY16, BINARY32
    from ipu.experiments.training.networks import fashion
    from ipu.learn.loss_scale import StaticLossScale
    from ipu.learn.optim import Adam
    from ipu.learn.policy import Policy
    from ipu.learn.train import Trainer
    from ipu.machine import POPART_CHECKS

    compute = BINARY16 if precision == "mixed" else BINARY32
    return Trainer(
        fashion,
        Adam(options.learning_rate, epsilon=1e-4),
        policy=Policy(BINARY32, compute, options.partials(compute)),
        control=POPART_CHECKS,
        loss_scale=StaticLossScale(options.loss_scaling_factor),
        seed=options.seed,
        count=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    from ipu.experiments.cli import run

    name = "float32_parameter_updates"
    return run(command, sys.argv[1:] if arguments is None else arguments, name)
