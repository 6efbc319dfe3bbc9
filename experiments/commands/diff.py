"""fpsim diff A B: the first operation at which two runs part."""

from __future__ import annotations

from pathlib import Path

import click

from ipu.experiments.commands.options import bad_input


@click.command("diff")
@click.argument("one", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("other", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--workers", is_flag=True,
              help="ONE and OTHER are workers of one training: compare the updates alone, which "
              "all workers compute alike.")
@click.option("--tolerance", "perturbed", metavar="FILE", multiple=True,
              type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Digests of ONE's run with --perturb FORMAT, OTHER's format: OTHER may differ "
              "by so much, times the factor. Again for more such runs, of other seeds.")
@click.option("--factor", type=click.FloatRange(min=0, min_open=True), default=8.0,
              show_default=True, help="With --tolerance.")
def command(
    one: Path, other: Path, workers: bool, perturbed: tuple[Path, ...], factor: float
) -> int:
    """Name the first operation at which two runs part.

    ONE and OTHER are what `fpsim torch --digest FILE`, `fpsim tf --digest FILE` and
    run.digest(FILE) write. With --keep N both runs store the results of operation N, and how far
    these are apart is told. The exit status is 0 for equal runs, 1 for runs that differ.

    Workers of `fpsim torch --replicas R --digest FILE` write FILE.replica-0 and so on.

    Runs whose bits differ from the start, as of policies, or the machine and torch itself
    (--native), are compared by a tolerance: write all files with --sketch, and those of the
    tolerance with --perturb FORMAT. The status is then 0 within it, 1 where it is passed, 3 where
    nothing can be told.
    """
    from ipu.run.digests import first_difference
    from ipu.run.tolerance import compare_within

    if perturbed:
        with bad_input():
            compliance = compare_within(one, other, perturbed, factor)
        click.echo(compliance)
        return 0 if compliance.is_within else 1 if compliance.can_tell else 3
    with bad_input():
        difference = first_difference(one, other, direction="optimizer" if workers else "")
    equal = "the workers' updates are equal" if workers else "the runs are equal"
    click.echo(f"{equal}, operation by operation" if difference is None else difference)
    return 0 if difference is None else 1
