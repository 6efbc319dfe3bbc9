"""Runs of a program in processes of their own, side by side, for the pairs of a comparison."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ipu.experiments.commands.options import bad_input

if TYPE_CHECKING:
    from ipu.run.endpoints import Outcome
    from ipu.run.paired import PairedJob
    from ipu.run.run import Run
    from ipu.run.ways import Way

__all__ = ["DigestOptions", "LineOf", "PairOptions", "PairProcesses", "digesting", "outcome_of",
           "pair_options", "program_process", "write_json"]

#: The command line of `fpsim` for a way, with these options beside it.
LineOf = Callable[["Way", Sequence[str]], list[str]]
#: Set for programs whose folder is of one process already.
OF_ONE = "FPSIM_FOLDER_OF_ONE"


class PairOptions(NamedTuple):
    """What a comparison declares, and how many processes run at once; 0: one for each core."""

    pairs: int
    endpoint: str
    margin: float | None
    jobs: int


class DigestOptions(NamedTuple):
    """Where the digests of a run go, the operation whose values are kept, whether with sketches.

    perturbed    the format by whose units all results move; None: they stay.
    """

    path: Path | None
    keep: int | None
    sketch: bool
    perturbed: str | None = None

    def of(self, process: str) -> DigestOptions:
        """Those of one of several processes: its name ends the file's."""
        if self.path is None:
            return self
        return self._replace(path=self.path.with_name(f"{self.path.name}.{process}"))


def _checked_format(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    """The name of a format of numbers.

    Raises    click.UsageError for another one.
    """
    from fpsim.records.formats import find_number_format

    if name is None:
        return None
    with bad_input():
        return find_number_format(name).name


def pair_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--compare and what belongs to it, what a run of a pair is told by, --digest and its own."""
    for option in (
        click.option("--perturb", default=None, metavar="FORMAT", callback=_checked_format,
                     help="Parameters and all results move by a unit in the last place of FORMAT, "
                     "at random by --seed: what fpsim diff --tolerance needs."),
        click.option("--sketch", is_flag=True,
                     help="With --digest: what fpsim diff --tolerance needs of values."),
        click.option("--keep", type=click.IntRange(0), default=None, metavar="N",
                     help="With --digest: store the results of operation N too."),
        click.option("--digest", type=click.Path(path_type=Path), default=None, metavar="FILE",
                     help="Write a digest of every operation, for fpsim diff."),
        click.option("--json", "json_path", hidden=True, default=None,
                     type=click.Path(path_type=Path), help="File of the report; counts."),
        click.option("--nudge", is_flag=True, hidden=True,
                     help="Parameters move by a unit in the last place after the first update."),
        click.option("--pair", type=click.IntRange(0), default=None, hidden=True,
                     help="Generators of the program begin at the seeds of this pair."),
        click.option("--jobs", type=click.IntRange(0), default=0, metavar="N",
                     help="Processes at once with --compare; 0: one for each core."),
        click.option("--margin", type=float, default=None, metavar="X",
                     help="Difference that does not matter, in the endpoint's units."),
        click.option("--endpoint", default="progress", show_default=True, metavar="NAME",
                     help="What --compare judges by: progress, log-loss, lowest:WORD or "
                     "highest:WORD, a number that the program prints behind WORD."),
        click.option("--pairs", type=click.IntRange(1), default=12, show_default=True, metavar="N",
                     help="Pairs of runs with --compare, at most; below 5 there is no verdict."),
        click.option("--compare", "compared", default=None, metavar="WAY,WAY,...",
                     help="Run in several ways, as fp32,fp16,fp16+sr; verdict and page in OUT."),
    ):
        function = option(function)
    return function


@contextmanager
def digesting(run: Run, digests: DigestOptions, seed: int) -> Iterator[None]:
    """Inside, the digests of a run are written to a file, if there is to be one.

    seed    of what moves the results of a run that is perturbed.

    Raises    ValueError for a file that cannot be written.
    """
    if digests.perturbed is not None:
        run.perturb(digests.perturbed, seed)
    if digests.path is None:
        if digests.keep is not None or digests.sketch:
            raise click.UsageError("--keep and --sketch belong to --digest FILE")
        yield
        return
    try:
        file = run.digest(digests.path, digests.keep, sketch=digests.sketch)
    except OSError as error:
        raise click.UsageError(
            f"digest={str(digests.path)!r} cannot be written: {error.strerror}") from None
    with file:
        yield


def program_process(line: Sequence[str], threads: int | None = None, **kinds: Any) -> Any:
    """A process that runs `fpsim` with this command line, with text from and to it."""
    environment = _environment()
    if threads is not None:
        environment["FPSIM_THREADS"] = str(threads)
    # Opened anew, a file is read from its beginning, whatever the other runs have read of it.
    with open("/dev/stdin" if _has_file() else os.devnull, "rb") as file:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "ipu.experiments.cli", *line],
            stdin=file, text=True, env=environment, **kinds,
        )


def _has_file() -> bool:
    """Whether standard input is a file, which every run can read; a pipe none of them reads."""
    try:
        return stat.S_ISREG(os.fstat(0).st_mode)
    except OSError:
        return False


def _environment() -> dict[str, str]:
    """This one's, with the folder that fpsim was imported from."""
    import fpsim

    assert fpsim.__file__ is not None
    root = str(Path(fpsim.__file__).parents[1])
    path = [*filter(None, [os.environ.get("PYTHONPATH")]), root]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path), OF_ONE: "1"}


class PairProcesses:
    """Makes the runs of a comparison.

    jobs    processes at once.
    """

    def __init__(self, ways: Sequence[Way], line_of: LineOf, jobs: int) -> None:
        self._ways, self._line_of, self.jobs = ways, line_of, jobs

    def __call__(self, jobs: Sequence[PairedJob]) -> list[Outcome]:
        """The outcomes of these runs, in their order."""
        threads = max(1, (os.cpu_count() or 1) // self.jobs)
        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(lambda job: self._run(job, threads), jobs))

    def _run(self, job: PairedJob, threads: int) -> Outcome:
        from ipu.run.pages.page import read_report

        with tempfile.TemporaryDirectory(prefix="fpsim-pair-") as folder:
            path = Path(folder, "report.json")
            options = ["--pair", str(job.pair), "--json", str(path)]
            options += ["--nudge"] if job.nudged else []
            line = self._line_of(self._ways[job.way], options)
            with program_process(
                line, threads, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as process:
                printed, errors = process.communicate()
            report = read_report(path)
        lines = errors.strip().splitlines()
        return outcome_of(report, printed, process.returncode, lines[-1] if lines else "")


def outcome_of(report: Any, printed: str, status: int, reason: str = "") -> Outcome:
    """What a process left, as a run of a comparison.

    reason    the last line of its errors.
    """
    from ipu.run.endpoints import Outcome

    error = ""
    if report is None or status:
        error = f"exit status {status}" + (f": {reason}" if reason else "")
    return Outcome(() if report is None else report["losses"], report or {}, error,
                   printed=printed)


def write_json(path: Path | None, report: Any) -> None:
    """Write a report for the process that compares."""
    from ipu.run.pages.page import plain

    if path is not None:
        path.write_text(json.dumps(plain(report)), encoding="utf-8")
