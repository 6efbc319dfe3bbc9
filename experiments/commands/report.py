"""fpsim report: the default experiments, or all, and one page over them."""

from __future__ import annotations

from pathlib import Path

import click

from ipu.experiments.commands.options import run_options
from ipu.experiments.lab.catalogue import catalogue


@click.command("report")
@click.option(
    "--all", "everything", is_flag=True, help="All experiments, not only the default ones."
)
@run_options
def command(everything: bool, quick: bool, seed: int, jobs: int, out: Path) -> int:
    """Run the default experiments and write OUT/index.html and OUT/index.md."""
    from ipu.experiments.commands.series import run_series

    experiments = [e for e in catalogue().values() if e.default or everything]
    return run_series(experiments, out, quick=quick, seed=seed, jobs=jobs)
