"""fpsim verify: the core against recorded vectors and against the definition of each mode."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from ipu.experiments.commands.options import bad_input

if TYPE_CHECKING:
    from fpsim.judge.verify.report import VerificationReport

FILES = click.argument(
    "files", nargs=-1, metavar="[FILES]...", type=click.Path(path_type=Path, allow_dash=True)
)


@click.group("verify")
def command() -> None:
    """Compare the arithmetic with external vectors or its definition, or prove it.

    Exit status 0 where everything agrees, 1 where something does not, 2 for bad input.
    """


@command.command("testfloat")
@click.argument("function")
@click.option("--rounding", default="near_even", show_default=True,
              metavar="near_even|minMag|min|max|near_maxMag|odd",
              help="Mode the vectors were made with.")
@click.option("--tininess", type=click.Choice(["before", "after"]), default="after",
              show_default=True, help="When the vectors look for tiny results.")
@click.option("--nan", type=click.Choice(["class", "x86"]), default="class", show_default=True,
              help="Any NaN equals any other, or the payload counts.")
@FILES
def testfloat(
    function: str, rounding: str, tininess: str, nan: str, files: tuple[Path, ...]
) -> int:
    """Lines of testfloat_gen FUNCTION, from FILES (.gz too) or standard input.

    Vectors of conversions to integers and of roundToInt are made with -exact.
    """
    from fpsim.judge.verify.testfloat import verify

    with bad_input(), counting("vectors") as watch:
        report = verify(function, rounding, streams(files), tininess=tininess, nan=nan, watch=watch)
    return tell([report])


@command.command("fpgen")
@FILES
def fpgen(files: tuple[Path, ...]) -> int:
    """IBM FPgen's .fptest files, binary32, from FILES (.gz too) or standard input."""
    from fpsim.judge.verify.fpgen import OPERATIONS, verify
    from fpsim.judge.verify.lines import text_lines

    with bad_input():
        reports = [verify(name, text_lines(stream, name)) for name, stream in streams(files)]
        if not any(report.checked for report in reports):
            names = ", ".join(report.label for report in reports)
            raise ValueError(
                f"no vectors to compare in {names}; give FPgen's lines of {' '.join(OPERATIONS)}"
            )
    return tell(reports)


@command.command("exhaustive")
@click.argument("operation")
@click.option("--rounding", default="RNE", show_default=True, metavar="NAME,...|all",
              help="Modes: RNE RNA RNZ RTZ RTP RTN RAZ RTO.")
@click.option("--tininess", type=click.Choice(["before", "after"]), default="after",
              show_default=True, help="When tiny results are looked for.")
@click.option("--stride", type=click.IntRange(1, 1 << 16), default=1, show_default=True,
              help="Take every so-many-th second operand.")
def exhaustive(operation: str, rounding: str, tininess: str, stride: int) -> int:
    """Every operand against the definition of the mode.

    add, subtract, multiply and divide: all pairs of binary16. sqrt, round_to_integral and convert
    (to every format): all values of binary16 and bfloat16.
    """
    from fpsim.judge.verify.definition import MODES
    from fpsim.judge.verify.exhaustive import PAIRS, check, verify

    modes = list(MODES) if rounding == "all" else rounding.split(",")
    with bad_input():
        for mode in modes:
            check(operation, mode)
    status = 0
    for mode in modes:
        total = -(-(1 << 16) // stride) << 16 if operation in PAIRS else None
        with counting("results", f"{operation} {mode}", total) as watch:
            reports = list(verify(operation, mode, tininess=tininess, stride=stride, watch=watch))
        status |= tell(reports)
    return status


@command.command("matrix-unit")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--unit", required=True, metavar="NAME", help="See: fpsim list units.")
@click.option("--result", type=click.Choice(["fp32", "fp16"]), default=None,
              help="Which recorded results; default: those of the unit's partials.")
def matrix_unit(file: Path, unit: str, result: str | None) -> int:
    """Recorded results of a matrix unit: FILE is an .npz with a, b, c, d_fp32 or d_fp16."""
    import ipu.machine  # noqa: F401  (registers the units of the IPU)
    from fpsim.judge.verify.units import read, verify

    with bad_input():
        report = verify(read(file), unit, result)
    return tell([report])


@command.command("engines")
@click.option("--outputs", type=click.IntRange(1), default=20_000, show_default=True,
              help="Outputs to judge.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--product", type=click.IntRange(0), default=None, metavar="N",
              help="Product number N alone, as a mismatch names it.")
@click.option("--unit", "units", multiple=True, metavar="NAME|all",
              help="Named units instead of random ones; see: fpsim list units.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True,
              help="Processes that share the work.")
def engines(outputs: int, seed: int, product: int | None, units: tuple[str, ...], jobs: int) -> int:
    """One product through every engine that takes it, beside exact fractions.

    Units at random, or named ones, with operands at random, alone and between rows and columns of
    NaN, infinities, subnormals and the largest numbers. A mismatch is a line that begins with the
    command that repeats it. The first run compiles about a hundred kernels.
    """
    import ipu.machine  # noqa: F401  (registers the units of the IPU)
    from fpsim.judge.verify.engines import verify, verify_together
    from fpsim.records.units import UNITS, find_unit

    with bad_input(), counting("outputs", "engines", outputs) as watch:
        names = tuple(UNITS) if units == ("all",) else units
        named = tuple(find_unit(name) for name in names)
        if product is not None:
            report = verify(outputs=1, seed=seed, first=product, units=named)
        else:
            report = verify_together(jobs, outputs=outputs, seed=seed, units=named, watch=watch)
    return tell([report])


@command.command("proof")
@click.argument("words", nargs=-1, metavar="[NAME|KIND]...")
@click.option("--list", "only_list", is_flag=True, help="Names, kinds and statements alone.")
@click.option("--quick", is_flag=True, help="The subset that takes a minute.")
@click.option("--limit", type=click.FloatRange(min=0, min_open=True), default=120.0,
              show_default=True, help="Seconds of processor time of one theorem.")
@click.option("--at", "at", multiple=True, metavar="NAME=VALUE",
              help="No proof: the compiled code and the oracle at this point of one theorem.")
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Keep verdicts in FILE; theorems that it holds are not decided again.")
@click.option("--page", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              metavar="PAGE", help="No proof: write the table of FILE's verdicts into PAGE.")
def proof(
    words: tuple[str, ...], only_list: bool, quick: bool, limit: float, at: tuple[str, ...],
    record: Path | None, page: Path | None,
) -> int:
    """Theorems about the kernels, for all inputs, decided by an SMT solver (extra `proofs`).

    Without a NAME all of them, an hour or two. A counterexample is run again through the compiled
    code and the oracle, and printed as the command that shows it. Exit status 1 where a theorem
    is refuted or not decided in time.
    """
    with bad_input(), needs_solver():
        from fpsim.judge.proofs import page as pages
        from fpsim.judge.proofs.catalogue import find
        from fpsim.judge.proofs.theorem import PROVED, prove, values_of

        theorems = [t for t in find(words) if t.quick or not quick]
        proofs = pages.read(record) if record else {}
        if at:
            theorem, point = values_of(theorems, at)
        if page:
            pages.write(page, pages.table(theorems, proofs))
    if at:
        finding = theorem.found_at(point)
        click.echo(finding)
        return int(finding.differs)
    if only_list:
        for theorem in theorems:
            click.echo(f"{theorem.kind:<24} {theorem.name}: {theorem.statement}")
    if page or only_list:
        return 0
    status = int(any(not proofs[t.name]["status"].startswith(PROVED) for t in theorems
                     if t.name in proofs))
    for theorem in theorems:
        if theorem.name in proofs:
            continue
        verdict = prove(theorem, limit)
        click.echo(verdict)
        if record:
            pages.record(record, verdict)
        status |= int(not verdict.is_proved)
    return status


@contextmanager
def needs_solver() -> Iterator[None]:
    """Inside, a missing solver is told in one sentence."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "bitwuzla":
            raise
        raise ValueError(
            "proofs need the solver Bitwuzla, which is not installed; "
            "install the extra: pip install 'fpsim-lab[proofs]'"
        ) from None


def streams(files: tuple[Path, ...]) -> Iterator[tuple[str, BinaryIO]]:
    """(name, binary stream) of each file; standard input for none, or for -."""
    for path in files or (Path("-"),):
        if str(path) == "-":
            yield "stdin", sys.stdin.buffer
            continue
        try:
            with path.open("rb") as stream:
                yield str(path), stream
        except OSError as error:
            raise ValueError(f"file={str(path)!r} cannot be read ({error.strerror})") from None


@contextmanager
def counting(
    unit: str, label: str = "", total: int | None = None
) -> Iterator[Callable[[int], None]]:
    """A bar of what has been compared; gives the function that moves it on."""
    from tqdm import tqdm

    from ipu.experiments.lab.progress import DELAY

    with tqdm(desc=f"  {label or unit}", total=total, unit=f" {unit}", unit_scale=True,
              delay=DELAY, leave=False, disable=None) as bar:
        yield lambda n: bar.update(n) and None


def tell(reports: list[VerificationReport]) -> int:
    """Print the reports; exit status 1 if any of them found a mismatch."""
    for report in reports:
        click.echo(report)
        for line in report.failures:
            click.echo(line)
    return int(any(report.mismatches for report in reports))
