"""Running several experiments: the report stays up to date, an interrupted series goes on."""

from __future__ import annotations

import json
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from fpsim.state.files import write_whole
from ipu.experiments.commands.options import bad_input
from ipu.experiments.lab import store
from ipu.experiments.lab.catalogue import Listed, find
from ipu.experiments.lab.processes import as_finished
from ipu.experiments.lab.report import write_report
from ipu.experiments.lab.runner import UnsavedError, draw, now, run
from ipu.experiments.lab.store import check_writable
from ipu.experiments.lab.versions import sources
from ipu.feed.files import DataFileError

#: Is there while a series runs; a later series of the same experiments goes on from it.
UNFINISHED = ".unfinished.json"


class SeriesItem(NamedTuple):
    """One experiment of a series, as another process is told of it."""

    name: str
    out: Path
    quick: bool
    seed: int


class Done(NamedTuple):
    """The answer of an experiment, or what stopped it.

    error     the traceback of a failure.
    refusal   the sentence about a file of the user or a disk that stopped it.
    rows      the result as CSV where the disk did not take it.
    """

    answer: str
    error: str = ""
    refusal: str = ""
    rows: str = ""


def run_series(
    experiments: Sequence[Listed], out: Path, *, quick: bool, seed: int, jobs: int = 1
) -> int:
    """Run each into `out`, in so many processes; the report is rewritten after each.

    One whose package is missing is skipped, with the reason. An experiment that fails does not stop
    the others; the status is then 1, and 2 where a file of the user or a disk stopped one: a result
    that the disk did not take is printed. After an interruption the same series runs only what had
    not finished.
    """
    with bad_input():
        check_writable(out)
    for experiment in experiments:
        if experiment.missing:
            click.echo(f"skipped: {experiment.missing}", err=True)
    experiments = [experiment for experiment in experiments if not experiment.missing]
    names = [experiment.name for experiment in experiments]
    finished = resume(names, out, quick, seed)
    if finished:
        click.echo(f"kept from the interrupted run: {', '.join(finished)}")
    rest = [SeriesItem(e.name, out, quick, seed) for e in experiments if e.name not in finished]
    failed, refused = [], []
    try:
        for number, (job, done) in enumerate(_run(rest, jobs), len(finished) + 1):
            click.echo(f"[{number}/{len(experiments)}] {job.name}: {find(job.name).question}")
            _tell(done)
            if done.error:
                failed.append(job.name)
            elif done.refusal:
                refused.append(f"{job.name}: {done.refusal}")
            else:
                finished.append(job.name)
                write_report(out)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_where_kept(finished, out)) from None
    (out / UNFINISHED).unlink(missing_ok=True)
    for sentence in refused:
        click.echo(f"fpsim: {sentence}", err=True)
    if not rest:
        write_report(out)
    if failed:
        click.echo(f"fpsim: failed: {', '.join(failed)}", err=True)
        return 1
    if refused:
        return 2
    click.echo((out / "index.html").resolve())
    return 0


def _tell(done: Done) -> None:
    """Print the answer, or what stopped the experiment, and rows that are saved nowhere."""
    if done.error:
        click.echo(done.error, err=True)
    if done.answer:
        click.echo(textwrap.indent(textwrap.fill(done.answer, 96), "      "))
    click.echo(done.rows, nl=False)


def resume(names: list[str], out: Path, quick: bool, seed: int) -> list[str]:
    """The experiments that the same series, interrupted, had finished; none for a new one."""
    file = out / UNFINISHED
    series = {"names": names, "quick": quick, "seed": seed, "sources": sources()}
    try:
        before = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    if not isinstance(before, dict) or before.get("series") != series:
        about = {"series": series, "started": now()}
        write_whole(file, json.dumps(about, indent=2).encode())
        return []
    return [name for name in names if _is_finished(out, name, str(before.get("started")))]


def _is_finished(out: Path, name: str, started: str) -> bool:
    """A complete result since then; one that was interrupted while drawing is drawn."""
    try:
        stored = store.load(out / name)
    except store.DamagedError:
        return False
    if stored is None or str(stored[1].get("date", "")) < started:
        return False
    if not (out / name / store.FIGURE).exists():
        draw(find(name), out, stored[0])
    return True


def _where_kept(finished: list[str], out: Path) -> str:
    if not finished:
        return "no experiment had finished"
    return f"{', '.join(finished)} had finished, in {out}; the same command runs the others"


def _run(jobs: Sequence[SeriesItem], n: int) -> Iterator[tuple[SeriesItem, Done]]:
    """Each job with its outcome; with processes the longest begin first."""
    if n > 1 and len(jobs) > 1:
        ordered = sorted(jobs, key=lambda job: -find(job.name).budget)
        yield from as_finished(_one, ordered, min(n, len(jobs)), "experiments")
        return
    for job in jobs:
        yield job, _one(job)


def _one(job: SeriesItem) -> Done:
    try:
        return Done(run(find(job.name), job.out, quick=job.quick, seed=job.seed).answer)
    except DataFileError as error:
        return Done("", refusal=str(error))
    except UnsavedError as error:
        return Done(error.answer, refusal=f"not saved: {error.reason}", rows=error.rows)
    except Exception:
        return Done("", traceback.format_exc())
