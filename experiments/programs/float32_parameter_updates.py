"""A convolutional network on Fashion-MNIST with parameters stored and updated in binary32.

The tutorial's text casts logits to binary32 before the loss, its program does not: `--cast-logits`
is the text's form.

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
    from ipu.learn.tensor import Tensor
    from ipu.learn.train import Trainer


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("precision", type=click.Choice(["mixed", "float32"]))
@click.option("--cast-logits", is_flag=True, help="Logits in binary32, as the tutorial's text.")
@options
def command(precision: str, options: ProgramOptions, *, cast_logits: bool) -> int:
    """Train a convolutional network on Fashion-MNIST; mixed computes in binary16."""
    from ipu.experiments.programs.loop import TrainingLoop, run
    from ipu.feed.data import fashion_mnist

    with bad_input():
        data = options.data(fashion_mnist, (28, 28, 1))
        trainer = build(precision, options, cast_logits=cast_logits)
        name = f"Fashion-MNIST network in {precision}" + ", logits cast" * cast_logits
        loop = TrainingLoop(name, trainer, data, options)
    return run(loop)


def build(precision: str, options: ProgramOptions, *, cast_logits: bool = False) -> Trainer:
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
        _single_logits if cast_logits else fashion,
        Adam(options.learning_rate, epsilon=1e-4),
        policy=Policy(BINARY32, compute, options.partials(compute)),
        control=POPART_CHECKS,
        loss_scale=StaticLossScale(options.loss_scaling_factor),
        seed=options.seed,
        count=True,
    )


def _single_logits(images: Tensor) -> Tensor:
    """The network with its logits in binary32; their gradient is cast back once."""
    from fpsim.records.formats import BINARY32
    from ipu import ops
    from ipu.experiments.training.networks import fashion

    return ops.cast(fashion(images), dtype=BINARY32)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    from ipu.experiments.cli import run

    name = "float32_parameter_updates"
    return run(command, sys.argv[1:] if arguments is None else arguments, name)
