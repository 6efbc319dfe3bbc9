"""A program run in several ways, each in a process of its own, and the page of all."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ipu.run.advising import Advised
    from ipu.run.pages.comparison import Compared
    from ipu.run.ways import Way

__all__ = ["as_options", "compare", "folder_of", "make_folder", "target_of", "tell_page"]

#: Set for programs whose folder is of one process already.
_OF_ONE = "FPSIM_FOLDER_OF_ONE"
#: Bytes that a folder must take before a program runs: a page with its figures.
_ROOM = 1 << 20


def compare(
    program: Path, ways: Sequence[Way], out: Path, line_of: Callable[[Way, Path], list[str]]
) -> int:
    """Run a program in each way, then write the page of all; the largest exit status.

    line_of    the command line of `fpsim` for a way, with the folder of its page.
    """
    from ipu.run.pages.comparison import summary_rows, write_comparison
    from ipu.run.text import why_no_loss

    runs = []
    for way in ways:
        click.echo(f"fpsim: {program.name} in {way}", err=True)
        name = re.sub(r"[^\w.=+-]+", "_", str(way))
        runs.append(_in_process(str(way), line_of(way, out / name), out / name))
    for run, row in zip(runs, summary_rows(runs), strict=True):
        reason = why_no_loss(run.report) if run.report is not None else ""
        click.echo(f"fpsim: {row[0]}  {row[1]}" + (f"  ({reason})" if reason else ""), err=True)
    click.echo(write_comparison(out, runs, program.name).resolve(), err=True)
    return max(run.status for run in runs)


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
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "ipu.experiments.cli", *line],
        stdin=_same_input(), stdout=subprocess.PIPE, stderr=None, text=True, env=_environment(),
    ) as process:
        assert process.stdout is not None
        printed = []
        for text in process.stdout:
            click.echo(text, nl=False)
            printed.append(text)
    report = read_report(folder / "report.json")
    page = f"{folder.name}/index.html" if (folder / "index.html").exists() else ""
    return Compared(way, report, "".join(printed), page, process.returncode)


def _same_input() -> Any:
    """Standard input of each way: a file from its beginning, else none; all ways read the same."""
    try:
        os.lseek(0, 0, os.SEEK_SET)
    except OSError:
        return subprocess.DEVNULL
    return None if stat.S_ISREG(os.fstat(0).st_mode) else subprocess.DEVNULL


def folder_of(out: Path, name: str | None) -> Path:
    """The folder of this process's page: each of several has one below `out`.

    name    of the process, as "worker-1"; None: it is alone.
    """
    return out if name is None or _OF_ONE in os.environ else out / name


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


def _environment() -> dict[str, str]:
    """This one's, with the folder that fpsim was imported from."""
    import fpsim

    assert fpsim.__file__ is not None
    root = str(Path(fpsim.__file__).parents[1])
    path = [*filter(None, [os.environ.get("PYTHONPATH")]), root]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path), _OF_ONE: "1"}
