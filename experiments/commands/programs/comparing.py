"""A program run in several ways, each in processes of its own: verdicts, and the page of all."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ipu.experiments.commands.options import bad_input
from ipu.experiments.commands.programs.pairing import (
    OF_ONE,
    LineOf,
    PairOptions,
    PairProcesses,
    outcome_of,
    program_process,
)
from ipu.experiments.commands.programs.writing import WatchedFolder

if TYPE_CHECKING:
    from ipu.run.advising import Advised
    from ipu.run.pages.comparison import Compared
    from ipu.run.ways import Way

__all__ = ["as_options", "compare", "folder_of", "make_folder", "target_of", "tell_page",
           "tell_status"]

#: Bytes that a folder must take before a program runs: a page with its figures.
_ROOM = 1 << 20
#: Of a comparison in which a gradient scaler would be refused with --found-inf values.
_BY_STATUS = (
    "overflow saturates, so gradient scalers read the status register of the backward pass, as "
    "with --found-inf status"
)


def compare(
    program: Path, ways: Sequence[Way], out: Path, options: PairOptions, line_of: LineOf,
) -> int:
    """Run a program in each way and judge the ways; the largest exit status of pair 0.

    line_of    the command line of `fpsim` for a way, with options.
    """
    from ipu.run.endpoints import find_endpoint
    from ipu.run.judging import Declaration
    from ipu.run.pages.comparison import write_comparison
    from ipu.run.paired import compare_pairs

    with bad_input():
        declared = Declaration(find_endpoint(options.endpoint, options.margin), options.pairs)
    _tell(f"declared before the runs ({declared.digest}): {declared}")
    names = [str(way) for way in ways]
    runs, writes = _first_pair(program, ways, out, line_of)
    _tell_first(runs)
    jobs = 1 if writes else options.jobs or os.cpu_count() or 1
    if writes and declared.looks and len(ways) > 1:
        _tell(f"pairs run one after another, as the program writes {writes}")
    reference = names.index("fp32") if "fp32" in names else 0
    first = [outcome_of(run.report, run.printed, run.status) for run in runs]
    asks_status = any(run.report["asks_status"] for run in runs if run.report is not None)
    if asks_status:
        _tell(_BY_STATUS)
    comparison = compare_pairs(
        declared, names, reference, first, PairProcesses(ways, line_of, jobs), tell=_tell,
    )
    if asks_status:
        comparison.notes.insert(0, _BY_STATUS)
    click.echo(write_comparison(out, runs, program.name, comparison).resolve(), err=True)
    return max(run.status for run in runs)


def _tell(text: str) -> None:
    click.echo(f"fpsim: {text}", err=True)


def _first_pair(
    program: Path, ways: Sequence[Way], out: Path, line_of: LineOf
) -> tuple[list[Compared], str]:
    """Pair 0 of each way with its page, one after another; and a file that the program writes."""
    runs, writes = [], ""
    folder_of_program = WatchedFolder(Path.cwd(), out.resolve())
    for way in ways:
        _tell(f"{program.name} in {way}")
        folder = out / re.sub(r"[^\w.=+-]+", "_", str(way))
        line = line_of(way, ["--pair", "0", "--report", str(folder)])
        runs.append(_in_process(str(way), line, folder))
        writes = writes or folder_of_program.written()
    return runs, writes


def _tell_first(runs: Sequence[Compared]) -> None:
    from ipu.run.pages.comparison import summary_rows
    from ipu.run.text import why_no_loss

    for run, row in zip(runs, summary_rows(runs), strict=True):
        reason = why_no_loss(run.report) if run.report is not None else ""
        _tell(f"{row[0]}  {row[1]}" + (f"  ({reason})" if reason else ""))


def tell_status(report: Mapping[str, Any]) -> None:
    """Say that a scaler read the status register, where nobody asked for it."""
    if report["asks_status"]:
        _tell(_BY_STATUS)


def target_of(ways: Sequence[Way], target: str | None) -> str | None:
    """The target of all ways: one that takes blocks, and says so, where a way has some."""
    from ipu.run.policies import has_recipe

    if target is not None or not any(has_recipe(way.policy) for way in ways):
        return target
    click.echo(
        "fpsim: target=hypothetical for all ways: no IPU has units that take blocks", err=True
    )
    return "hypothetical"


def _in_process(way: str, line: Sequence[str], folder: Path) -> Compared:
    from ipu.run.pages.comparison import Compared
    from ipu.run.pages.page import read_report

    (folder / "report.json").unlink(missing_ok=True)
    with program_process(line, stdout=subprocess.PIPE) as process:
        printed = []
        for text in process.stdout:
            click.echo(text, nl=False)
            printed.append(text)
    report = read_report(folder / "report.json")
    page = f"{folder.name}/index.html" if (folder / "index.html").exists() else ""
    return Compared(way, report, "".join(printed), page, process.returncode)


def folder_of(out: Path, name: str | None) -> Path:
    """The folder of this process's page: each of several has one below `out`.

    name    of the process, as "worker-1"; None: it is alone.
    """
    return out if name is None or OF_ONE in os.environ else out / name


def make_folder(out: Path) -> None:
    """Before the program runs: an hour's counts must not end at a folder that takes no page."""
    from fpsim.state.files import check_room

    try:
        out.mkdir(parents=True, exist_ok=True)
        check_room(out, _ROOM)
    except OSError as error:
        raise ValueError(f"report={str(out)!r} is no folder for a page: {error.strerror}") from None


def tell_page(
    out: Path, report: Mapping[str, Any], advised: Advised, title: str, *, is_printed: bool
) -> None:
    """Write the page of a run and print its path.

    is_printed    the report stands in the terminal already.
    Raises        UsageError where the disk takes no page; the report goes to the terminal instead.
    """
    from fpsim.state.files import refusal
    from ipu.run.pages.page import write_run

    try:
        page = write_run(out, report, advised, title)
    except OSError as error:
        if not refusal(error):
            raise
        if not is_printed:
            click.echo(f"\n{report}", err=True)
        click.echo(f"\n{advised}", err=True)
        raise click.UsageError(refusal(error)) from None
    click.echo(page.resolve(), err=True)


def as_options(choices: Mapping[str, Any]) -> Iterator[str]:
    """Choices of the machine on a command line."""
    for name, value in choices.items():
        if value is True:
            yield f"--{name.replace('_', '-')}"
        elif value:
            yield from (f"--{name.replace('_', '-')}", str(value))
