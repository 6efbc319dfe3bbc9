"""Options that several commands share, and the border where a ValueError becomes one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fpsim.records.blocks import Block
    from fpsim.records.formats import Format

SEED_LIMIT = 1 << 64


class Seed(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic from click 8.2 on
    """A whole number that fits the generator's key."""

    name = "seed"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            seed = int(value)
        except ValueError:
            seed = -1
        if not 0 <= seed < SEED_LIMIT:
            raise click.UsageError(
                f"seed={value!r} is not a seed; use a whole number from 0 to 2**64 - 1"
            )
        return seed


@contextmanager
def bad_input() -> Iterator[None]:
    """Inside, a ValueError or TypeError is the user's: its sentence, and exit status 2.

    Only for reading arguments; an error inside the work itself is ours and keeps its traceback.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None


def read_formats(names: str) -> list[Format]:
    """Formats of numbers from a list of names with commas.

    Raises    ValueError with the close name for one that is not known.
    """
    from fpsim.records.formats import Format

    formats = read_formats_or_blocks(names)
    for fmt in formats:
        if not isinstance(fmt, Format):
            raise ValueError(f"format={fmt.name!r} is of blocks; give a format of numbers")
    return [fmt for fmt in formats if isinstance(fmt, Format)]


def read_formats_or_blocks(names: str) -> list[Format | Block]:
    """The same, and block-scaled formats."""
    from fpsim.records.blocks import BLOCKS
    from fpsim.records.formats import ScaleFormat, find_format

    formats: list[Format | Block] = []
    for text in names.split(","):
        name = text.strip()
        block = BLOCKS.get(name.lower())
        if block is not None:
            formats.append(block)
            continue
        fmt = find_format(name)
        if isinstance(fmt, ScaleFormat):
            raise ValueError(
                f"format={fmt.name!r} holds scales of blocks; give a format of numbers"
            )
        formats.append(fmt)
    return formats


def run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--quick, --seed, --jobs and --out."""
    for option in (
        click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True,
                     help="Experiments at a time, each in a process; they share the threads."),
        click.option("--out", type=click.Path(path_type=Path), default=Path("reports"),
                     show_default=True, help="Folder for the results."),
        click.option("--seed", type=Seed(), default=0, show_default=True,
                     help="Seed of everything random."),
        click.option("--quick", is_flag=True, help="Seconds instead of minutes; fewer points."),
    ):
        function = option(function)
    return function


def with_json(function: Callable[..., Any]) -> Callable[..., Any]:
    """--json, of commands that print a table."""
    decorate = click.option("--json", "as_json", is_flag=True, help="The table as a JSON list.")
    return decorate(function)


def echo_json(rows: Sequence[object]) -> None:
    """Rows as a JSON list, one line each; nan and infinities as Python's json writes them."""
    lines = (json.dumps(row, ensure_ascii=False, default=str) for row in rows)
    click.echo("[\n" + ",\n".join(lines) + "\n]")


def completing(
    names: Callable[[], Sequence[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """What the shell may offer for an argument: names that begin as typed."""
    return lambda ctx, param, typed: [name for name in names() if name.startswith(typed)]
