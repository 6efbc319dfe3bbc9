"""fpsim diff A B: the first operation at which two runs part."""

from __future__ import annotations

from pathlib import Path

import click

from ipu.experiments.commands.options import bad_input


@click.command("diff")
@click.argument("one", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("other", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def command(one: Path, other: Path) -> int:
    """Name the first operation at which two runs part.

    ONE and OTHER are what `fpsim torch --digest FILE`, `fpsim tf --digest FILE` and
    run.digest(FILE) write. With --keep N both runs store the results of operation N, and how far
    these are apart is told. The exit status is 0 for equal runs, 1 for runs that differ.
    """
    from ipu.run.digests import first_difference

    with bad_input():
        difference = first_difference(one, other)
    click.echo("the runs are equal, operation by operation" if difference is None else difference)
    return 0 if difference is None else 1
