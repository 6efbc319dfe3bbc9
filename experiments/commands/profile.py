"""fpsim profile: what formats would do to the arrays of a file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ipu.experiments.commands.options import (
    bad_input,
    echo_json,
    read_formats_or_blocks,
    with_json,
)

if TYPE_CHECKING:
    import numpy as np

    from fpsim.inspect.blocks import BlockProfile
    from fpsim.inspect.profile import Profile
    from ipu.experiments.lab.result import Row

SHARES = ("underflows", "overflows", "subnormals", "inexact", "nans", "infinities")
#: Types of numbers that a .npy file holds as bytes without a name.
DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


@click.command("profile")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.npy|.npz")
@click.option("--formats", default="binary16,bfloat16", show_default=True, metavar="NAME,...",
              help="Formats to try; see: fpsim list formats.")
@click.option("--dtype", type=click.Choice(DTYPES), default=None,
              help="Type of elements that the file holds without a name (|V2).")
@click.option("--out", type=click.Path(path_type=Path), default=Path("reports", "profile"),
              show_default=True, help="Folder for the table and the figure.")
@with_json
def command(file: Path, formats: str, dtype: str | None, out: Path, as_json: bool) -> None:
    """Shares of underflow, overflow, subnormal and inexact values, and the best power-of-two scale.

    Writes OUT/STEM.csv (with the histogram of exponents and what every scale loses) and
    OUT/STEM.png; another file's table of that name is kept, and this one is called STEM-2. Arrays
    of whole numbers are skipped.
    """
    from ipu.experiments.commands.exponents import losses
    from ipu.experiments.lab.progress import progress
    from ipu.experiments.lab.store import check_writable

    with bad_input():
        targets = read_formats_or_blocks(formats)
        arrays, skipped = load(file, dtype)
        check_writable(out)
    from fpsim.inspect.blocks import block_profile
    from fpsim.inspect.profile import profile
    from fpsim.records.blocks import Block

    for name, reason in skipped.items():
        click.echo(f"fpsim: skipped {name}: {reason}", err=True)
    pairs = [(name, array, fmt) for name, array in arrays.items() for fmt in targets]
    profiles, blocks = [], []
    for name, array, fmt in progress(pairs, f"profiling {file.name}"):
        if isinstance(fmt, Block):
            blocks.append((name, block_profile(array, fmt)))
        else:
            profiles.append((name, profile(array, fmt)))
    if as_json:
        echo_json([*(shares_row(name, p) for name, p in profiles),
                   *(block_row(name, p) for name, p in blocks)])
    else:
        lines = [*table(profiles), *losses(profiles)] if profiles else []
        for line in (*lines, *block_table(blocks)):
            click.echo(line)
    paths = write(profiles, free_stem(out / file.stem, file), file, blocks)
    if not as_json:
        for path in paths:
            click.echo(path)


def load(file: Path, dtype: str | None = None) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays of a .npy or .npz file by name (FILE.npy, FILE.npz:NAME), and why others are left out.

    Raises    ValueError for a file that is missing, damaged, cut short, or holds objects, and for
              one without any array of floating-point numbers.
    """
    from fpsim.state.files import read_arrays

    try:
        contents = read_arrays(file)
    except OSError as error:
        raise ValueError(f"file={str(file)!r} cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise ValueError(
            f"file={str(file)!r} is no complete .npy or .npz file of numbers ({error})"
        ) from None
    arrays, skipped = {}, {}
    for key, array in contents.items():
        name = f"{file.name}:{key}" if key else file.name
        try:
            arrays[name] = floating(array, dtype)
        except ValueError as error:
            skipped[name] = str(error)
    if not arrays:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped.items())
        raise ValueError(f"file={str(file)!r} holds no floating-point array ({reasons or 'none'})")
    return arrays, skipped


def floating(array: np.ndarray, dtype: str | None) -> np.ndarray:
    """The array as floating-point numbers; bytes without a name become `dtype`.

    Raises    ValueError with the reason for anything else.
    """
    import ml_dtypes
    import numpy as np

    if array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        return array
    if array.dtype.kind != "V" or array.dtype.names is not None:
        raise ValueError(f"its elements are {array.dtype}, no floating-point numbers")
    if dtype is None:
        raise ValueError(f"its elements are {array.dtype} without a name; say --dtype bfloat16")
    named = np.dtype(getattr(ml_dtypes, dtype))
    if named.itemsize != array.dtype.itemsize:
        raise ValueError(f"--dtype {dtype} has {named.itemsize} bytes, its elements have "
                         f"{array.dtype.itemsize}")
    return array.view(named)


def table(profiles: list[tuple[str, Profile]]) -> Iterator[str]:
    """One line per array and format."""
    width = max([len("array"), *(len(name) for name, _ in profiles)])
    heads = "".join(f"{share:>12}" for share in SHARES)
    yield f"{'array':<{width}}  {'format':<9}{'elements':>12}{heads}   best scale: what is left"
    for name, p in profiles:
        shares = "".join(f"{p.share(share):>12.3%}" for share in SHARES)
        left = (
            f"{p.scaled_underflows} underflows, {p.scaled_subnormals} subnormals, "
            f"{p.scaled_overflows} overflows"
        )
        yield (
            f"{name:<{width}}  {p.format.name:<9}{p.n:>12}{shares}   2^{p.scale_exponent}: {left}"
        )


def block_table(profiles: list[tuple[str, BlockProfile]]) -> Iterator[str]:
    """One line per array and block-scaled format, along the last axis."""
    if not profiles:
        return
    width = max([len("array"), *(len(name) for name, _ in profiles)])
    yield (
        f"{'array':<{width}}  {'block':<17}{'blocks':>10}{'SQNR':>10}{'gain':>9}{'flushed':>10}"
        f"{'clipped':>10}{'zero scale':>12}{'NaN':>8}"
    )
    for name, p in profiles:
        yield (
            f"{name:<{width}}  {p.block.name:<17}{p.blocks:>10}{p.sqnr:>7.2f} dB{p.gain:>9.4f}"
            f"{p.flushed:>10.3%}{p.clipped:>10.3%}{p.zero_scales:>12.3%}{p.nans:>8.2%}"
        )


def block_row(name: str, p: BlockProfile) -> Row:
    """The shares of one array in one block-scaled format."""
    return {
        "array": name, "format": p.block.name, "part": "blocks", "elements": p.elements,
        "blocks": p.blocks, "sqnr": p.sqnr, "gain": p.gain, "flushed": p.flushed,
        "clipped": p.clipped, "zero_scales": p.zero_scales,
        "scale_underflows": p.scale_underflows, "scale_overflows": p.scale_overflows,
        "nan_blocks": p.nans,
    }


def free_stem(stem: Path, file: Path) -> Path:
    """`stem`, or the first of stem-2, stem-3 … that no other file's table has."""
    number, candidate = 1, stem
    while _owner(candidate) not in ("", str(file.resolve())):
        number += 1
        candidate = stem.with_name(f"{stem.name}-{number}")
    return candidate


def _owner(stem: Path) -> str:
    """The file that a table was made from; "" where there is none, or of an older fpsim."""
    try:
        with stem.with_name(f"{stem.name}.csv").open(encoding="utf-8", newline="") as stream:
            return next(csv.DictReader(stream)).get("file") or ""
    except (OSError, StopIteration, ValueError):
        return ""


def write(
    profiles: list[tuple[str, Profile]], stem: Path, file: Path,
    blocks: Sequence[tuple[str, BlockProfile]] = (),
) -> list[Path]:
    """The table and the histograms as STEM.csv, the figure as STEM.png if there are histograms."""
    from fpsim.state.files import write_whole
    from ipu.experiments.commands.exponents import exponent_figure
    from ipu.experiments.lab.result import Result
    from ipu.run.pages.drawing import to_png

    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("csv", "png")]
    origin: Row = {"file": str(file.resolve())}
    rows = [{**origin, **row} for name, p in profiles for row in _rows(name, p)]
    rows += [{**origin, **block_row(name, p)} for name, p in blocks]
    write_whole(paths[0], Result(rows, "", "").to_csv().encode())
    if not profiles:
        return paths[:1]
    write_whole(paths[1], to_png(exponent_figure(profiles)))
    return paths


def shares_row(name: str, p: Profile) -> Row:
    """The counts and shares of one array in one format."""
    return {
        "array": name, "format": p.format.name, "part": "shares", "elements": p.n,
        "zeros": p.zeros, **{share: p.share(share) for share in SHARES},
        "scale_exponent": p.scale_exponent, "scaled_underflows": p.scaled_underflows,
        "scaled_subnormals": p.scaled_subnormals, "scaled_overflows": p.scaled_overflows,
    }


def _rows(name: str, p: Profile) -> Iterator[Row]:
    yield shares_row(name, p)
    for exponent, count in zip(p.exponents.tolist(), p.counts.tolist(), strict=True):
        yield {"array": name, "format": p.format.name, "part": "histogram", "exponent": exponent,
               "count": count}
    for k, lost in zip(p.scales.tolist(), p.lost.tolist(), strict=True):
        yield {"array": name, "format": p.format.name, "part": "scale", "scale_exponent": k,
               "lost": lost}
