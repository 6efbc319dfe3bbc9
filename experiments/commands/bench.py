"""fpsim bench: how fast the arithmetic is on this machine, beside np.copyto and other tools."""

from __future__ import annotations

import importlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ipu.experiments.bench import TOPICS
from ipu.experiments.commands.options import bad_input, completing

if TYPE_CHECKING:
    from types import ModuleType

    from ipu.experiments.bench.timing import Size, Written


#: In the place of a topic: two files of records side by side, and records as a picture.
COMPARE, DRAW = "compare", "draw"


@click.command("bench")
@click.argument("topic", metavar="|".join(
                    [*TOPICS, f"{COMPARE} A.json B.json", f"{DRAW} A.json ... PICTURE.png"]),
                shell_complete=completing(lambda: [*TOPICS, COMPARE, DRAW]))
@click.argument("files", nargs=-1, metavar="", type=click.Path(path_type=Path))
@click.option("--threads", type=click.IntRange(1, 1024), default=1, show_default=True,
              help="Threads for kernels and for the reference.")
@click.option(
    "--n",
    type=click.IntRange(1),
    default=None,
    help="Elements (default 10000000); rows of a matrix (default 512); images (default 32).",
)
@click.option("--quick", is_flag=True, help="Seconds instead of minutes; fewer rows and elements.")
@click.option("--busy", is_flag=True,
              help="Measure although other work runs beside; --quick does.")
@click.option("--json", "file", type=click.Path(path_type=Path, dir_okay=False), default=None,
              help="Write the records there as well, a JSON list.")
def command(
    topic: str, files: tuple[Path, ...], threads: int, n: int | None, quick: bool,
    busy: bool, file: Path | None,
) -> None:
    """Time per element (on startup per call), and the ratio to np.copyto of the same run.

    With one thread times are processor time, and a measurement in which that is below 0.97 of wall
    time is refused: other work runs beside it.

    gemm gives billions of multiply-adds per second, and the ratio to BLAS in binary32. Small arrays
    stay in the cache, where ratios mean something else: say n with every number. train gives images
    per second of training steps, and their ratio to what the rate of gemm would allow. compare
    prints how two files of records differ, with the bounds of their rounds. draw makes a picture of
    the records of round, arith and gemm: rates of kernels against the bandwidth of a copy and BLAS.
    """
    with bad_input():
        check(topic, files, file)
        if topic == COMPARE:
            _compare(*files)
            return
        if topic == DRAW:
            _draw(*files)
            return
    from fpsim.state.files import write_whole
    from ipu.experiments.bench.hardware import hardware
    from ipu.experiments.bench.timing import run, to_json
    from ipu.experiments.lab.progress import progress

    module = importlib.import_module(f"ipu.experiments.bench.{topic}")
    size = usual_size(module, quick)
    cases = module.cases(replace(size, n=n or size.n), quick)
    records: list[Written] = []
    click.echo(f"# {hardware()}")
    try:
        for record in progress(run(cases, threads), f"bench {topic}"):
            records.append(record)
            click.echo(record)
            with bad_input():
                check_quiet(record, busy or quick)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_where_kept(len(records), file)) from None
    finally:
        if file is not None:
            write_whole(file, to_json(records, asdict(hardware())).encode())


def check_quiet(record: Written, busy: bool) -> None:
    """Refuse a measurement that other work disturbed."""
    from ipu.experiments.bench.timing import LEAST_SHARE

    if not busy and record.share is not None and record.share < LEAST_SHARE:
        raise ValueError(
            f"processor time was {record.share:.2f} of wall time in the last measurement, below "
            f"{LEAST_SHARE}: other work runs on this machine; stop it, or measure with --busy"
        )


def _where_kept(n: int, file: Path | None) -> str:
    """What an interruption leaves."""
    return f"{n} records are in {file}" if n and file is not None else ""


def usual_size(module: ModuleType, quick: bool) -> Size:
    """The amount of work of a topic: its own `SIZES` (full, quick), or that of arrays."""
    from ipu.experiments.bench.timing import Size

    full, small = getattr(module, "SIZES", (Size(), Size(n=1_000_000, repeats=3)))
    return small if quick else full


def _compare(old: Path, new: Path) -> None:
    """The rows that both files have."""
    from ipu.experiments.bench.compare import changes, read
    from ipu.experiments.bench.hardware import Hardware

    before, after = read(old), read(new)
    rows = list(changes(before, after))
    if not rows:
        raise ValueError(
            f"{old} and {new} have no measurement in common; compare runs of one topic"
        )
    for label, records in (("old", before), ("new", after)):
        for machine in dict.fromkeys(Hardware(**record["hardware"]) for record in records):
            click.echo(f"# {label}: {machine}")
    for row in rows:
        click.echo(row)
    click.echo(f"# {len(rows)} rows in both, {len(after) - len(rows)} only in {new}")


def _draw(*files: Path) -> None:
    """A picture of the records, in the last file."""
    from fpsim.state.files import write_whole
    from ipu.experiments.bench import roofline
    from ipu.run.pages import drawing

    *sources, picture = files
    records = roofline.read(sources)
    figure, (axes,) = drawing.new_figure(8.5, 5.6)
    roofline.draw(axes, records)
    write_whole(picture, drawing.to_png(figure))
    click.echo(f"wrote {picture}: {len(list(roofline.points(records)))} kernels")


def check(topic: str, files: tuple[Path, ...], file: Path | None) -> None:
    """Refuse an unknown topic, wrong files or an unwritable one before any work."""
    from ipu.experiments.lab.store import check_writable

    if topic == COMPARE:
        if len(files) != 2:
            raise ValueError(
                f"compare takes two files of records, got {len(files)}; name A.json B.json"
            )
        return
    if topic == DRAW:
        if len(files) < 2:
            raise ValueError(
                f"draw takes files of records and a picture, got {len(files)}; name A.json ... "
                "PICTURE.png"
            )
        check_writable(files[-1].parent)
        return
    if files:
        raise ValueError(f"{files[0]} is one argument too many; --json names the file of records")
    if topic not in TOPICS:
        raise ValueError(f"topic={topic!r} is not known; use one of {', '.join(TOPICS)}")
    if file is not None:
        check_writable(file.parent)
