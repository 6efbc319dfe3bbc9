"""Step functions: what `advise` calls to run a user's program again, from equal states."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from ipu.run.text import Report
from ipu.run.trials import Outcome

__all__ = ["Step", "run_step"]

#: Trains from a seed inside of a session, and returns losses or None.
Step = Callable[[int], Sequence[float] | None]


class Program(Protocol):
    """What is asked of a session."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *error: Any) -> None: ...
    def report(self) -> Report: ...


def run_step(session: Program, step: Step, seed: int) -> Outcome:
    """Losses and report of a step function in a session; torch's generator is as it was before."""
    losses: Sequence[float] | None = None
    error = ""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # What a way warns of, the way of the run has said.
        warnings.simplefilter("ignore", RuntimeWarning)
        torch.manual_seed(seed)
        try:
            with session:
                losses = step(seed)
        except (ValueError, NotImplementedError, ArithmeticError) as caught:
            error = str(caught).partition("\n")[0]
    report = session.report()
    return Outcome([float(x) for x in losses] if losses else report["losses"], report, error)
