"""fpsim run NAME…: experiments by name."""

from __future__ import annotations

from pathlib import Path

import click

from ipu.experiments.commands.options import bad_input, completing, run_options
from ipu.experiments.lab.catalogue import Listed, catalogue, find

#: The name of all published claims together.
PUBLISHED = "published"


@click.command("run")
@click.argument(
    "names",
    nargs=-1,
    required=True,
    metavar="NAME...",
    shell_complete=completing(lambda: [*catalogue(), PUBLISHED]),
)
@run_options
def command(names: tuple[str, ...], quick: bool, seed: int, jobs: int, out: Path) -> int:
    """Run experiments and write OUT/NAME/{data.csv, meta.json, figure.png}, then the report.

    `published` stands for all published claims; OUT/published.html lists them with their verdicts.
    """
    with bad_input():
        experiments = [e for name in names for e in _named(name)]
        missing = next((e.missing for e in experiments if e.missing), "")
        if missing:
            raise ValueError(missing)
    from ipu.experiments.commands.series import run_series

    status = run_series(experiments, out, quick=quick, seed=seed, jobs=jobs)
    if PUBLISHED in names:
        from ipu.experiments.published.gallery import write_gallery

        for exhibit in write_gallery(out):
            click.echo(f"{exhibit.verdict:16} {exhibit.experiment}: {exhibit.part}")
        click.echo((out / f"{PUBLISHED}.html").resolve())
    return status


def _named(name: str) -> list[Listed]:
    """The experiment of a name, or all of the room `published`."""
    if name != PUBLISHED:
        return [find(name)]
    return [e for e in catalogue().values() if e.room.endswith(f".{PUBLISHED}")]
