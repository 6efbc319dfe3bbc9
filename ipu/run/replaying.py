"""The first steps of a program again and again: what a diagnosis is made of, under every front end.

Each run begins at the same seeds, is stopped after so many steps of an optimiser, and prints
nothing. A front end says how a run is made anew (`Run.again`) and how a program is started in it;
it calls `Run.stop_if_enough` where a step has ended.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import replace
from typing import Protocol, Self, TypeVar

from ipu.run.diagnosis import Replay
from ipu.run.endpoints import Outcome
from ipu.run.options import RunOptions
from ipu.run.restoring import Restoring
from ipu.run.seeding import seeded
from ipu.run.showing import Report
from ipu.run.ways import Way

__all__ = ["EnoughError", "replaying"]



class EnoughError(BaseException):
    """A run has made the steps that were asked for; programs that catch exceptions let it pass."""


class Replayed(Protocol):
    """What replaying asks of a run: `ipu.run.run.Run`."""

    options: RunOptions

    def again(self, way: Way, seed: int, restoring: Restoring) -> Self: ...
    def shadow(self, steps: int) -> object: ...
    def stop_after(self, steps: int) -> None: ...
    def report(self) -> Report: ...


R = TypeVar("R", bound=Replayed)


def replaying(
    run: R, steps: int, body: Callable[[R], object], stops: tuple[type[Exception], ...] = ()
) -> Replay:
    """Runs for a diagnosis: from the same seeds, of so many steps, without output.

    body     runs the program in a run, which it enters.
    stops    exceptions of a program that has stopped, beside those of its arithmetic.
    """
    stops = (*stops, ValueError, NotImplementedError, ArithmeticError)

    def replay(way: Way, restoring: Restoring, has_shadow: bool) -> Outcome:
        wide = way.changes.wide_states or restoring.widens_updates
        way = replace(way, changes=replace(way.changes, wide_states=wide))
        again = run.again(way, run.options.seed, restoring)
        if has_shadow:
            again.shadow(steps)
        again.stop_after(steps)
        error = ""
        with ExitStack() as stack:
            stack.enter_context(seeded(0))
            stack.enter_context(warnings.catch_warnings())
            stack.enter_context(redirect_stdout(io.StringIO()))
            stack.enter_context(redirect_stderr(io.StringIO()))
            warnings.simplefilter("ignore")
            try:
                body(again)
            except EnoughError:
                pass
            except stops as stopped:
                error = str(stopped).partition("\n")[0]
        report = again.report()
        return Outcome(report["losses"], report, error)

    return replay
