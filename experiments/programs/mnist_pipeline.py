"""The pipelining tutorial's program: MNIST on four simulated IPUs, trained and tested by PopTorch.

Source    Graphcore's PopTorch tutorial on pipelining: options, defaults, what is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ipu.experiments.commands.options import Seed, bad_input
from ipu.installation import not_installed

if TYPE_CHECKING:
    from ipu.feed.data import Data

ACCUMULATION, INFERENCE_ITERATIONS = 10, 100


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--batch-size", type=click.IntRange(1), default=40, help="Images of a micro-batch.")
@click.option(
    "--device-iterations",
    type=click.IntRange(1),
    default=10,
    help="Updates of one call, in training.",
)
@click.option(
    "--test-batch-size",
    type=click.IntRange(1),
    default=8,
    help="Images of a micro-batch, in inference.",
)
@click.option("--epochs", type=click.IntRange(0), default=3, help="Epochs of the training.")
@click.option("--learning-rate", type=float, default=0.001, help="Rate of AdamW.")
@click.option("--profile", is_flag=True, help="Write schedule, memory and pictures of an update.")
@click.option(
    "--profile-dir",
    type=click.Path(path_type=Path),
    default=Path("./profile"),
    help="Folder of the profile.",
)
@click.option(
    "--strategy",
    type=click.Choice(["pipelined", "sharded"]),
    default="pipelined",
    help="How stages follow each other.",
)
@click.option("--debug", is_flag=True, help="Print debug messages.")
@click.option("--offload-optimiser", is_flag=True, help="Optimiser state in remote memory.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder of the data sets.  [default: FPSIM_DATA; without it, digits]",
)
@click.option("--limit", type=click.IntRange(1), default=None, help="Use the first N images.")
@click.option("--seed", type=Seed(), default=0, help="Of weights, order and random bits.")
def command(**choices: Any) -> int:
    """Train and test a network for MNIST whose layers are four stages on four IPUs."""
    with bad_input():
        return run(**choices)


def run(
    *, batch_size: int, device_iterations: int, test_batch_size: int, epochs: int,
    learning_rate: float, profile: bool, profile_dir: Path, strategy: str, debug: bool,
    offload_optimiser: bool, data_dir: Path | None, limit: int | None, seed: int,
) -> int:
    """The program; its exit status."""
    try:
        from ipu.experiments.execution import mnist_network as tutorial
        from ipu.frontends import poptorch
    except ModuleNotFoundError as missing:
        raise click.UsageError(not_installed("PyTorch", "torch")) from missing
    if debug:
        poptorch.setLogLevel("DEBUG")
    data = tutorial.load(data_dir)
    print(f"data: {data}" + ("" if limit is None else f"; of both the first {limit}"))
    options = tutorial.options(
        strategy, iterations=device_iterations, accumulation=ACCUMULATION,
        offload=offload_optimiser, seed=seed,
    )
    if profile:
        options.enableProfiling(str(profile_dir))
    network = tutorial.network(seed)
    model = tutorial.training(network, options, learning_rate)
    train(model, tutorial.loader(options, tutorial.set_of(data.learn, limit), batch_size), epochs)
    if profile and epochs:
        draw(model, profile_dir)
    inference = options.clone().disableProfiling().deviceIterations(INFERENCE_ITERATIONS)
    inference.Training.gradientAccumulation(1)
    test(poptorch.inferenceModel(network, inference), data, inference, test_batch_size, limit)
    return 0


def train(model: Any, batches: Any, epochs: int) -> None:
    """Prints loss and accuracy of each call."""
    from tqdm import tqdm

    from ipu.experiments.execution.mnist_network import accuracy

    if not len(batches):
        size = batches.combinedBatchSize
        raise ValueError(
            f"the data has fewer than the {size} images of one call; use a smaller --batch-size or "
            "--device-iterations"
        )
    for epoch in range(1, epochs + 1):
        print(f"Epoch {epoch}/{epochs}")
        bar = tqdm(batches, total=len(batches), disable=None)
        for images, labels in bar:
            predictions, losses = model(images, labels)
            told = f"Loss:{losses.mean():0.4f} | Accuracy:{accuracy(predictions, labels):0.2f}%"
            bar.set_description(told)
        print(told)


def test(model: Any, data: Data, options: Any, batch_size: int, limit: int | None) -> None:
    """Prints the accuracy on the test set; it may be too small for a call of 100 micro-batches.

    As in the tutorial, images that fill no call are left out; the line says how many were tested.
    """
    from ipu.experiments.execution import mnist_network as tutorial

    images = tutorial.set_of(data.test, limit)
    fitting = len(images) // batch_size
    if not fitting:
        raise ValueError(f"--test-batch-size={batch_size} is more than {len(images)} test images")
    options.deviceIterations(min(options.device_iterations, fitting))
    batches = tutorial.loader(options, images, batch_size, shuffle=False)
    calls = [(tutorial.accuracy(model(x), labels), len(labels)) for x, labels in batches]
    tested = sum(n for _, n in calls)
    left = "" if tested == len(images) else f" (of the first {tested} of {len(images)} images)"
    print(f"Accuracy on test set: {sum(rate for rate, _ in calls) / len(calls):0.2f}%{left}")


def draw(model: Any, folder: Path) -> None:
    """Pictures of the profile: who runs what when, and what is held."""
    from ipu.experiments.pictures.sheet import draw_sheet

    figures = model.profile_figures
    sheet = draw_sheet(model.plan, figures)
    sheet.savefig(folder / "profile.png", dpi=110)
    print(f"profile: {folder / 'schedule.json'}, account.json, trace.json, profile.png")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    from ipu.experiments.cli import run as command_line

    name = "mnist_pipeline"
    return command_line(command, sys.argv[1:] if arguments is None else arguments, name)
