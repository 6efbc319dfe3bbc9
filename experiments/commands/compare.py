"""fpsim compare LEFT RIGHT: two reports side by side."""

from __future__ import annotations

from pathlib import Path

import click

from ipu.experiments.commands.options import bad_input

FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command("compare")
@click.argument("left", type=FOLDER)
@click.argument("right", type=FOLDER)
@click.option("--out", default=Path("compare.html"), show_default=True, metavar="FILE",
              type=click.Path(path_type=Path, dir_okay=False), help="The page.")
def command(left: Path, right: Path, out: Path) -> int:
    """Say which data of two report folders are the same bits, and write both on one page.

    The status is 1 where data differ.
    """
    with bad_input():
        if out.suffix != ".html":
            raise ValueError(f"out={str(out)!r} is no page; end it in .html")
        from ipu.experiments.lab.beside import write_beside

        both = write_beside(left, right, out)
    for one in both:
        click.echo(f"{one.name:26} {one.verdict}")
    click.echo(out.resolve())
    return int(any(one.differing for one in both))
