"""ResNet on CIFAR-10 in binary16 with stochastic rounding, or in binary32.

Source    Graphcore's TensorFlow 1 tutorial on half precision, stochastic_rounding.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from ipu.experiments.commands.options import bad_input
from ipu.experiments.programs.options import ProgramOptions, options

if TYPE_CHECKING:
    from ipu.learn.train import Trainer

#: As the tutorial says it.
BAD_DEPTH = (
    "Please choose a number of layers of the form 6N + 2 for a whole number N, such as 8, 14, 20, "
    "26, etc. (Note that valid sizes for CIFAR images differ from those for ImageNet images)"
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("precision", type=click.Choice(["float16", "float32"]))
@click.argument("depth", type=int)
@click.option("--disable-stochastic-rounding", is_flag=True, help="Round to nearest.")
@options
def command(
    precision: str, depth: int, disable_stochastic_rounding: bool, options: ProgramOptions
) -> int:
    """Train a ResNet of DEPTH = 6N + 2 layers on CIFAR-10."""
    if depth % 6 != 2 or depth < 8:
        print(BAD_DEPTH)
        return 1
    from ipu.experiments.programs.loop import TrainingLoop, run
    from ipu.feed.data import cifar10

    with bad_input():
        data = options.data(cifar10, (32, 32, 3))
        trainer = build(precision, depth, not disable_stochastic_rounding, options)
        loop = TrainingLoop(f"ResNet-{depth} in {precision}", trainer, data, options)
    return run(loop)


def build(precision: str, depth: int, stochastic: bool, options: ProgramOptions) -> Trainer:
    """The training; parameters have the format of the computation.

    SGD with momentum is linear in the gradient, so the learning rate is divided by the loss scale.
    """
    from fpsim.records.formats import BINARY16, BINARY32
    from ipu.experiments.training.networks import resnet
    from ipu.learn.loss_scale import LEARNING_RATE, StaticLossScale
    from ipu.learn.optim import SGD
    from ipu.learn.policy import Policy
    from ipu.learn.train import Trainer
    from ipu.machine import FpCtl

    fmt = BINARY16 if precision == "float16" else BINARY32
    return Trainer(
        partial(resnet, depth=depth),
        SGD(options.learning_rate, momentum=0.9),
        policy=Policy(fmt, fmt, options.partials(fmt)),
        control=FpCtl(esr=stochastic),
        loss_scale=StaticLossScale(options.loss_scaling_factor, LEARNING_RATE),
        seed=options.seed,
        count=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    from ipu.experiments.cli import run

    return run(command, sys.argv[1:] if arguments is None else arguments, "stochastic_rounding")
