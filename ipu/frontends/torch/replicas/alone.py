"""One replica: nothing is exchanged. What a session tells its replicas, whatever they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

__all__ = ["ALONE", "Alone", "Parameters", "refusing_process_groups"]

Parameters = Sequence[torch.Tensor]


class Alone:
    """One replica: nothing is exchanged."""

    number = 0

    def enter(self, module: torch.nn.Module) -> None:
        """A module runs that is no part of another."""

    def changed(self, *, in_update: bool) -> None:
        """Gradients are about to change.

        in_update    inside of an optimiser's step.
        """

    def average(self, parameters: Parameters, step: int) -> None:
        """The gradients of these parameters are about to be used."""

    def stepped(self, step: int) -> None:
        """A step is over."""

    @contextmanager
    def running(self, step: Callable[[], int]) -> Iterator[None]:
        """Around the program."""
        with refusing_process_groups():
            yield


ALONE = Alone()


@contextmanager
def refusing_process_groups() -> Iterator[None]:
    """torch.distributed cannot be started inside: its sums are not the machine's."""
    package, name = torch.distributed, "init_process_group"
    before = getattr(package, name, None)

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(
            "torch.distributed adds on the host in an order of its own, not on the machine; leave "
            "it out and run the program in replicas: fpsim torch --replicas R PROGRAM, or fpsim "
            "poprun --num-instances R --num-replicas R fpsim torch PROGRAM"
        )

    if before is not None:
        setattr(package, name, refuse)
    try:
        yield
    finally:
        if before is not None:
            setattr(package, name, before)
