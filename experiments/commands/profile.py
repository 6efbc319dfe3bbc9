"""fpsim profile: what formats would do to the arrays of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ipu.experiments.commands.options import bad_input, read_formats

if TYPE_CHECKING:
    import numpy as np

    from fpsim.inspect.profile import Profile
    from ipu.experiments.lab.result import Row

SHARES = ("underflows", "overflows", "subnormals", "inexact")


@click.command("profile")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.npy|.npz")
@click.option("--formats", default="binary16,bfloat16", show_default=True, metavar="NAME,...",
              help="Formats to try; see: fpsim list formats.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), default=Path("reports", "profile"),
              show_default=True, help="Folder for the table and the figure.")  # fmt: skip
def command(file: Path, formats: str, out: Path) -> None:
    """Shares of underflow, overflow, subnormal and inexact values, and the best power-of-two scale.

    Writes OUT/STEM.csv (with the histogram of exponents) and OUT/STEM.png.
    """
    from ipu.experiments.lab.progress import progress
    from ipu.experiments.lab.store import check_writable

    with bad_input():
        chosen = read_formats(formats)
        arrays = load(file)
        check_writable(out)
        from fpsim.inspect.profile import profile

        pairs = [(name, array, fmt) for name, array in arrays.items() for fmt in chosen]
        found = [
            (name, profile(array, fmt))
            for name, array, fmt in progress(pairs, f"profiling {file.name}")
        ]
    for line in table(found):
        click.echo(line)
    for path in write(found, out / file.stem):
        click.echo(path)


def load(file: Path) -> dict[str, np.ndarray]:
    """Arrays of a .npy or .npz file: FILE.npy, or FILE.npz:NAME for each.

    Raises    ValueError for a file that is missing, damaged, cut short, or holds objects.
    """
    from fpsim.state.files import read_arrays

    try:
        found = read_arrays(file)
    except OSError as error:
        raise ValueError(f"file={str(file)!r} cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise ValueError(
            f"file={str(file)!r} is no complete .npy or .npz file of numbers ({error})"
        ) from None
    return {f"{file.name}:{name}" if name else file.name: array for name, array in found.items()}


def table(found: list[tuple[str, Profile]]) -> Iterator[str]:
    """One line per array and format."""
    width = max([len("array"), *(len(name) for name, _ in found)])
    heads = "".join(f"{share:>12}" for share in SHARES)
    yield f"{'array':<{width}}  {'format':<9}{'elements':>12}{heads}   best scale: what is left"
    for name, p in found:
        shares = "".join(f"{p.share(share):>12.3%}" for share in SHARES)
        left = f"{p.scaled_underflows} underflows, {p.scaled_overflows} overflows"
        yield (
            f"{name:<{width}}  {p.format.name:<9}{p.n:>12}{shares}   2^{p.scale_exponent}: {left}"
        )


def write(found: list[tuple[str, Profile]], stem: Path) -> list[Path]:
    """The table and the histograms as STEM.csv, the figure as STEM.png."""
    from fpsim.state.files import write_whole
    from ipu.experiments.commands.exponents import exponent_figure
    from ipu.experiments.lab.drawing import to_png
    from ipu.experiments.lab.result import Result

    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("csv", "png")]
    text = Result([row for name, p in found for row in _rows(name, p)], "", "").to_csv()
    write_whole(paths[0], text.encode())
    write_whole(paths[1], to_png(exponent_figure(found)))
    return paths


def _rows(name: str, p: Profile) -> Iterator[Row]:
    key = {"array": name, "format": p.format.name}
    shares = {share: p.share(share) for share in SHARES}
    scale = {"scale_exponent": p.scale_exponent, "scaled_underflows": p.scaled_underflows,
             "scaled_overflows": p.scaled_overflows}  # fmt: skip
    yield {**key, "part": "shares", "elements": p.n, "zeros": p.zeros, "nans": p.nans,
           "infinities": p.infinities, **shares, **scale}  # fmt: skip
    for exponent, count in zip(p.exponents.tolist(), p.counts.tolist(), strict=True):
        yield {**key, "part": "histogram", "exponent": exponent, "count": count}
