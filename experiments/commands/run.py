"""fpsim run NAME…: experiments by name."""

from __future__ import annotations

from pathlib import Path

import click

from ipu.experiments.commands.options import bad_input, completing, run_options
from ipu.experiments.lab.catalogue import catalogue, find


@click.command("run")
@click.argument(
    "names",
    nargs=-1,
    required=True,
    metavar="NAME...",
    shell_complete=completing(lambda: list(catalogue())),
)
@run_options
def command(names: tuple[str, ...], quick: bool, seed: int, jobs: int, out: Path) -> int:
    """Run experiments and write OUT/NAME/{data.csv, meta.json, figure.png}, then the report."""
    with bad_input():
        experiments = [find(name) for name in names]
        missing = next((e.missing for e in experiments if e.missing), "")
        if missing:
            raise ValueError(missing)
    from ipu.experiments.commands.series import run_series

    return run_series(experiments, out, quick=quick, seed=seed, jobs=jobs)
