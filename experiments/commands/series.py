"""Running several experiments, one after the other, and keeping the report up to date."""

from __future__ import annotations

import textwrap
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from ipu.experiments.commands.options import bad_input
from ipu.experiments.lab.catalogue import Experiment
from ipu.experiments.lab.report import write_report
from ipu.experiments.lab.runner import run
from ipu.experiments.lab.store import check_writable


def run_series(chosen: Sequence[Experiment], out: Path, *, quick: bool, seed: int) -> int:
    """Run each into `out`; the report is rewritten after each, so ^C loses only what is running.

    An experiment that fails does not stop the others; the status is then 1.
    """
    with bad_input():
        check_writable(out)
    failed = []
    for number, experiment in enumerate(chosen, 1):
        click.echo(f"[{number}/{len(chosen)}] {experiment.name}: {experiment.question}")
        try:
            answer = run(experiment, out, quick=quick, seed=seed).answer
        except Exception:
            traceback.print_exc()
            failed.append(experiment.name)
            continue
        click.echo(textwrap.indent(textwrap.fill(answer, 96), "      "))
        page = write_report(out)
    if failed:
        click.echo(f"fpsim: failed: {', '.join(failed)}", err=True)
        return 1
    click.echo(page.resolve())
    return 0
