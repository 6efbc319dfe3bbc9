"""State: everything that the next training step depends on, as plain data in one record.

Values are kept with the name of their format and in its carrier, so they come back bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fpsim.records.formats import Format, find_format

__all__ = ["Kept", "Number", "Positioned", "Replica", "TrainingState", "format_named"]


Number = bool | int | float | str | None


class Kept(NamedTuple):
    """Values of a format in its carrier."""

    format: str
    values: NDArray[Any]

    @property
    def record(self) -> Format:
        """The format."""
        return format_named(self.format)


def format_named(name: str) -> Format:
    """A format of numbers, by the name that `Kept` keeps."""
    fmt = find_format(name)
    assert isinstance(fmt, Format)
    return fmt


class Positioned(Protocol):
    """A data source with a position that can be set."""

    position: int


@dataclass(frozen=True)
class Replica:
    """What a replica after the first has of its own.

    parameters   variables whose values differ from those of the first: moving statistics.
    slots        of variables, where they differ from those of the first.
    operation, flags, status, counts, delayed    as in `TrainingState`.
    """

    parameters: Mapping[str, Kept]
    slots: Mapping[str, tuple[Kept | Number, ...]]
    operation: int
    flags: Mapping[str, int]
    status: int
    counts: list[tuple[str, str, dict[str, int]]] | None
    delayed: Mapping[str, Any]


@dataclass(frozen=True)
class TrainingState:
    """What a training goes on from.

    built        what the training was built from, as text; compared by `restore`.
    parameters   every variable, by its full name.
    slots        the optimiser's memory, by the variable's name: values or numbers.
    loss_scale   the fields of the loss scale that move from step to step.
    step         steps tried.
    operation    running number of the next stochastic operation outside of steps.
    flags        flags raised so far, by format.
    status       word of the status register.
    counts       exception counters: [tensor, operation, {counter: n}]; None if nothing is counted.
    replicas     what the other replicas have of their own.
    position     batches that the data source has returned.
    progress     further numbers of the caller, by name.
    delayed      scales that follow from the steps before, by layer and operand.
    streams      words of the machine's own generator, (tiles, workers, 2); None with Philox.
    """

    built: Mapping[str, str]
    parameters: Mapping[str, Kept]
    slots: Mapping[str, tuple[Kept | Number, ...]]
    loss_scale: Mapping[str, Any]
    operation: int
    flags: Mapping[str, int]
    status: int = 0
    counts: list[tuple[str, str, dict[str, int]]] | None = None
    step: int = 0
    replicas: tuple[Replica, ...] = ()
    position: int = 0
    progress: Mapping[str, Number] | None = None
    delayed: Mapping[str, Any] = field(default_factory=dict)
    streams: NDArray[np.uint64] | None = None
