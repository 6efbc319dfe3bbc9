"""fpsim paper NAME…: stored results for a paper."""

from __future__ import annotations

from pathlib import Path

import click

from ipu.experiments.commands.options import bad_input, completing
from ipu.experiments.lab.catalogue import catalogue, find


@click.command("paper")
@click.argument("names", nargs=-1, required=True, metavar="NAME...",
                shell_complete=completing(lambda: list(catalogue())))
@click.option("--results", default=Path("reports"), show_default=True, metavar="FOLDER",
              type=click.Path(path_type=Path, file_okay=False),
              help="Where `fpsim run` wrote the results.")
@click.option("--to", "folder", default=Path("paper"), show_default=True, metavar="FOLDER",
              type=click.Path(path_type=Path, file_okay=False), help="Where the files go.")
def command(names: tuple[str, ...], results: Path, folder: Path) -> None:
    """Write the figures of results as SVG and PDF, their tables as LaTeX, and a BibTeX entry."""
    with bad_input():
        from ipu.experiments.lab.paper import stored, write_paper

        pairs = [(experiment, *stored(experiment, results)) for experiment in map(find, names)]
    for experiment, result, meta in pairs:
        for path in write_paper(experiment, result, meta, folder):
            click.echo(path)
