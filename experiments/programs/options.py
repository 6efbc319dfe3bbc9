"""Command-line options that the programs share, with the tutorial's defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ipu.experiments.commands.options import Seed

if TYPE_CHECKING:
    from fpsim.records.formats import Format
    from ipu.feed.data import Data

__all__ = ["ProgramOptions", "options"]


@dataclass(frozen=True)
class ProgramOptions:
    """What was asked for; see the help of each option."""

    batch_size: int
    epochs: int
    loss_scaling_factor: float
    learning_rate: float
    use_float16_partials: bool
    data_dir: Path | None
    limit: int | None
    checkpoint: Path | None
    seed: int
    no_warm_up: bool

    def partials(self, inputs: Format) -> Format:
        """Format of partial sums: where inputs are binary32, so are they."""
        from fpsim.records.formats import BINARY16, BINARY32

        return BINARY16 if self.use_float16_partials and inputs == BINARY16 else BINARY32

    def data(self, load: Callable[..., Data], shape: tuple[int, int, int]) -> Data:
        """What `load` finds in the folder asked for; without one, in FPSIM_DATA or else digits.

        Raises    ValueError where the folder was asked for and the files are not in it.
        """
        from ipu.feed.data import or_digits

        if self.data_dir is None:
            return or_digits(load, shape)
        return load(data_dir=self.data_dir)

    @property
    def numbers(self) -> str:
        """What decides the bits of a run, in words."""
        names = ("batch_size", "loss_scaling_factor", "learning_rate", "use_float16_partials",
                 "limit", "seed", "no_warm_up")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


_OPTIONS = (
    click.option("--batch-size", type=click.IntRange(1), default=32, help="Images of a batch."),
    click.option("--epochs", type=click.IntRange(0), default=5, help="Epochs that are reported."),
    click.option("--loss-scaling-factor", type=float, default=256.0, help="Factor of the loss."),
    click.option("--learning-rate", type=float, default=0.01, help="Rate of the optimiser."),
    click.option("--use-float16-partials", is_flag=True,
                 help="FP16 partial sums in matrix products and convolutions."),
    click.option("--data-dir", type=click.Path(path_type=Path), default=None,
                 help="Folder of the data sets (default: FPSIM_DATA; without it, digits)."),
    click.option("--limit", type=click.IntRange(1), default=None, help="Use the first N images."),
    click.option("--checkpoint", type=click.Path(path_type=Path), default=None,
                 help="Folder that the state is saved in, and resumed from."),
    click.option("--seed", type=Seed(), default=0, help="Of weights and random bits."),
    click.option("--no-warm-up", is_flag=True, help="No epoch before those that are reported."),
)


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The shared options; the command receives them as one `ProgramOptions`."""

    @wraps(function)
    def command(**arguments: Any) -> Any:
        shared = {field.name: arguments.pop(field.name) for field in fields(ProgramOptions)}
        return function(options=ProgramOptions(**shared), **arguments)

    wrapped: Callable[..., Any] = command
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
