"""The first steps of a program again and again: what a diagnosis is made of, under every front end.

Each run begins at the same seeds, is stopped after so many steps of an optimiser, and prints
nothing. A front end says how a run is made anew (`Run.again`) and how a program is started in it;
it calls `Run.stop_if_enough` where a step has ended.

A program need not take steps: one that integrates an equation may compute for hours. So the first
run is bound in time (`RunBound`), and all others stop where it was stopped: at the same step, or at
the same operation. From the third on a run is cut when the seconds of the diagnosis are over, and
tells nothing.
"""

from __future__ import annotations

import io
import math
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import replace
from typing import Protocol, Self, TypeVar

from ipu.run.budget import Budget, TimeOverError
from ipu.run.endpoints import Outcome
from ipu.run.options import RunOptions
from ipu.run.reruns import Replay
from ipu.run.restoring import Restoring
from ipu.run.seeding import seeded
from ipu.run.showing import Report
from ipu.run.ways import Way

__all__ = ["EnoughError", "replaying"]

#: Share of a diagnosis' seconds that the first run may take. The second takes up to twice as long,
#: and what is left are the trials.
_FIRST = 0.25
#: Runs that are made whatever they take: without them there is no page, and no remedy on it.
_NEEDED = 3
#: Seconds of the wall's clock that count as one of the processor.
_WAITING = 3.0


class EnoughError(BaseException):
    """A run has made the steps that were asked for; programs that catch exceptions let it pass."""


class RunBound:
    """Where a run ends that has not made the steps that were asked for.

    seconds    since its first operation, or since its last step ended. When the steps after the
               first, in which libraries are imported and kernels compiled, took longer together,
               the step that ends is the last.
    calls      operations, where an earlier run ended.
    is_over    whether a run that tells nothing any more ends now.
    """

    def __init__(
        self, seconds: float = math.inf, calls: int | None = None,
        is_over: Callable[[], bool] | None = None,
    ) -> None:
        self.seconds, self.calls, self.steps = seconds, calls, 0
        #: Why the run ended here, "" where it did not; and the seconds that it took.
        self.why, self.took = "", 0.0
        self.is_cut = False
        self._is_over = is_over
        self._begin = self._since = self._second = math.inf
        self._processor, self._wall = time.process_time(), time.monotonic()

    def _now(self) -> float:
        """Seconds on a clock; of a run without a bound in time it stands still.

        They are the processor's, so that where other programs run too this one is followed nearly
        as far; of one that waits more, the wall's, divided.
        """
        if self.seconds == math.inf:
            return 0.0
        waited = time.monotonic() - self._wall
        return max(time.process_time() - self._processor, waited / _WAITING)

    def check(self, calls: int) -> None:
        """So many operations have run.

        Raises    EnoughError where they are enough.
        """
        now = self._now()
        self._begin, self._since = min(self._begin, now), min(self._since, now)
        if now - self._since > self.seconds and not self.why:
            self.calls, self.took = calls, self.seconds
            more = " more" if self.steps else ""
            self.why = (
                f"the program ended no step of an optimiser{more} in {self.seconds:.0f} s, so each "
                f"run stops after {calls:,} operations; more --seconds follow it further"
            )
        if self.calls is not None and calls >= self.calls:
            raise EnoughError(f"{calls} operations have run")
        if self._is_over is not None and self._is_over():
            self.is_cut = True
            raise EnoughError("no time is left")

    def step_over(self, steps: int) -> None:
        """So many steps are over.

        Raises    EnoughError where there is no time for more.
        """
        now = self._now()
        self.steps, self._since, self._second = steps, now, min(self._second, now)
        if now - self._second > self.seconds:
            self.took = now - self._begin
            self.why = (
                f"{steps} steps took {self.took:.0f} s, so each run stops after them; more "
                "--seconds follow more of them"
            )
            raise EnoughError(f"{steps} steps are over")


class Replayed(Protocol):
    """What replaying asks of a run: `ipu.run.run.Run`."""

    options: RunOptions

    def again(self, way: Way, seed: int, restoring: Restoring) -> Self: ...
    def shadow(self, steps: int) -> object: ...
    def stop_after(self, steps: int, bound: RunBound | None = None) -> None: ...
    def report(self) -> Report: ...


R = TypeVar("R", bound=Replayed)


def replaying(
    run: R, steps: int, body: Callable[[R], object], stops: tuple[type[Exception], ...] = (),
    budget: Budget | None = None,
) -> Replay:
    """Runs for a diagnosis: from the same seeds, of so many steps, without output.

    body     runs the program in a run, which it enters.
    stops    exceptions of a program that has stopped, beside those of its arithmetic.
    budget   of all runs. Where the first one was stopped by its share, all others are; its report
             then has `followed`: the steps, and why there are no more.

    A run raises TimeOverError where the budget is over in it, but for the first two.
    """
    budget = budget or Budget()
    stops = (*stops, ValueError, NotImplementedError, ArithmeticError)
    bounds: list[RunBound] = []  # of the runs; the first one's say where the others end

    def replay(way: Way, restoring: Restoring, has_shadow: bool) -> Outcome:
        wide = way.changes.wide_states or restoring.widens_updates
        way = replace(way, changes=replace(way.changes, wide_states=wide))
        again = run.again(way, run.options.seed, restoring)
        most, bound = steps, RunBound(budget.share(_FIRST))
        if bounds:
            ended = bounds[0]
            is_needed = len(bounds) < _NEEDED
            bound = RunBound(
                calls=ended.calls, is_over=None if is_needed else lambda: budget.left < 0)
            most = ended.steps if ended.why and ended.calls is None else steps
        bounds.append(bound)
        if has_shadow:
            again.shadow(most)
        again.stop_after(most, bound)
        error, printed = "", io.StringIO()
        with ExitStack() as stack:
            stack.enter_context(seeded(0))
            stack.enter_context(warnings.catch_warnings())
            stack.enter_context(redirect_stdout(printed))
            stack.enter_context(redirect_stderr(io.StringIO()))
            warnings.simplefilter("ignore")
            try:
                body(again)
            except EnoughError:
                pass
            except stops as stopped:
                error = str(stopped).partition("\n")[0]
        if bound.is_cut:
            raise TimeOverError
        report = again.report()
        if bound.why:
            report["followed"] = {"steps": bound.steps, "calls": bound.calls,
                                  "seconds": bound.took, "why": bound.why}
        return Outcome(report["losses"], report, error, printed=printed.getvalue())

    return replay
