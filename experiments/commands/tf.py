"""`fpsim tf [--tf1] PROGRAM ARGS`: a TensorFlow program, unedited, on the simulated machine."""

from __future__ import annotations

import importlib.util
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import click

__all__ = ["command"]


@click.command(
    "tf",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--tf1", is_flag=True, help="The program is written for TensorFlow 1.")
@click.option("--policy", default="f32", show_default=True, help="Formats, as p=f16,c=f16.")
@click.option("--sr/--no-sr", default=None, help="Stochastic rounding, whatever the program says.")
@click.option("--seed", default=0, show_default=True, help="Of the machine's random bits.")
@click.option("--target", default="mk2", show_default=True, help="The machine.")
@click.option("--ties", type=click.Choice(["all", "first"]), default="all", show_default=True,
              help="Of maximum pooling: the machine's rule, or TensorFlow's.")  # fmt: skip
@click.option("--found-inf", type=click.Choice(["values", "status"]), default="values",
              help="What loss scalers look at: gradients, or the status register.")  # fmt: skip
@click.option("--reference", is_flag=True, help="TensorFlow executes the program itself.")
@click.option("--report", "report_to", type=click.Path(dir_okay=False, path_type=Path),
              help="Count by layer, and write what the run did as JSON.")  # fmt: skip
@click.argument("program", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    tf1: bool, program: Path, arguments: tuple[str, ...], report_to: Path | None, **choices: Any
) -> None:
    """Run a TensorFlow program with Graphcore's ipu module on the simulated machine.

    Options come before PROGRAM; what follows it goes to the program.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise click.ClickException(
            'TensorFlow is not installed; install it with: pip install "fpsim[tensorflow]" '
            "(Python 3.11 to 3.13)"
        )
    import ipu.frontends.tensorflow  # noqa: F401
    from ipu.frontends.tensorflow.engine.machine import Choices, choose, current

    try:
        choose(Choices(**choices, count=report_to is not None))
    except (TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    if tf1:
        from ipu.frontends.tensorflow.facade import install_facade

        install_facade()
    run_program(program, arguments)
    if report_to is not None:
        from ipu.frontends.tensorflow.engine.report import report

        report_to.write_text(json.dumps(report(current()), indent=2) + "\n", encoding="utf-8")


def run_program(program: Path, arguments: tuple[str, ...]) -> None:
    """Run a file as Python would, with its own folder first among the paths."""
    argv, path = sys.argv, sys.path.copy()
    sys.argv = [str(program), *arguments]
    sys.path.insert(0, str(program.resolve().parent))
    try:
        runpy.run_path(str(program), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = argv, path
