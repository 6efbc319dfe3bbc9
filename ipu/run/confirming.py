"""Remedies over more steps than the diagnosis: one that cures the first ones may not last.

As a loss scale by which the first gradients are large enough, and those of a training that is
nearly over are not. And one whose losses of the first steps part by what may be chance may cure. So
these are run for four times as many steps, beside binary32 and the run as it is: first the one that
is told first, before sites are searched where that takes half of the time that is left at most;
then the others, while there is time. Each is told with the number of its steps. One that leaves
more harm than a cure may (`ipu.run.harm.most_left`), by more than chance makes, cures no longer.

Losses of more steps part without a cause, too, as those of any two runs of a training that is
chaotic. So none is judged where binary32's run and the run as it is do not part.

Evidence    ASSUMED: the number of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ipu.run.budget import Budget, TimeOverError
from ipu.run.diagnosis import TriedRemedy
from ipu.run.endpoints import Outcome
from ipu.run.harm import HARM, is_of_chance, most_left
from ipu.run.horizons import FURTHER
from ipu.run.reruns import Replay, Reruns
from ipu.run.restoring import Restoring
from ipu.run.ways import Way

__all__ = ["Confirming", "further_runs", "over_more_steps"]

#: Remedies that are followed further, at most.
_FOLLOWED = 3
#: Runs of more steps that the first remedy takes: binary32's, as it is, and its own.
_RUNS = 3


def further_runs(runs: Reruns, longer: Callable[[int, Budget], Replay], steps: int) -> Reruns:
    """Runs of the same program for so many steps, without shadows.

    Raises    TimeOverError where the seconds are over.
    """
    budget = Budget(runs.budget.left)
    replay = longer(steps, budget)

    def without_shadow(way: Way, restoring: Restoring, _: bool) -> Outcome:
        return replay(way, restoring, False)

    return Reruns(without_shadow, runs.way, budget, runs.sites, runs.check)


def over_more_steps(
    remedy: TriedRemedy, further: Reruns, outcome: Outcome, steps: int
) -> TriedRemedy:
    """A remedy as the outcome of its further run has it: it cures where the harm is gone."""
    harm, before = further.harm(outcome), further.harm(further.base)
    return replace(
        remedy, cures=harm <= most_left(before), harm=harm, losses=further.losses_of(outcome),
        reference=further.losses, before=before,
        steps=len(further.reference.losses) or steps)


class Confirming:
    """Follows remedies of a diagnosis further.

    runs      of the diagnosis.
    longer    runs the program for so many steps, within a budget.
    steps     of the diagnosis.
    """

    def __init__(
        self, runs: Reruns, longer: Callable[[int, Budget], Replay], steps: int
    ) -> None:
        self._runs, self._longer, self._steps = runs, longer, steps
        self._further: Reruns | None = None

    def first(self, remedies: list[TriedRemedy]) -> None:
        """The first one that cures, where half of the time that is left is enough."""
        if self._runs.budget.has_time_for(2 * _RUNS * FURTHER):
            self._follow(remedies, 1)

    def others(self, remedies: list[TriedRemedy]) -> None:
        """The first few that cure, while there is time."""
        self._follow(remedies, _FOLLOWED)

    def _follow(self, remedies: list[TriedRemedy], most: int) -> None:
        """In place of remedies that may cure, what they do in more steps, until so many do."""
        with suppress(TimeOverError):
            for index, remedy in enumerate(remedies):
                if sum(bool(r.cures and r.steps) for r in remedies) >= most:
                    return
                if self._may_cure(remedy):
                    further = self._runs_further()
                    if further is None:
                        return
                    remedies[index] = self._followed(remedy, further)

    def _may_cure(self, remedy: TriedRemedy) -> bool:
        """Whether the first steps say so, or leave it open."""
        if remedy.reference or remedy.steps or remedy.before <= HARM:
            return False
        return remedy.cures or is_of_chance(remedy.harm, remedy.losses, self._runs.losses)

    def _runs_further(self) -> Reruns | None:
        """Runs of more steps, while there is time for another one; None: they tell nothing."""
        n = 1 if self._further else _RUNS
        if not self._runs.budget.has_time_for(n * FURTHER) or self._runs.printed is not None:
            return None
        if self._further is None:
            self._further = further_runs(self._runs, self._longer, FURTHER * self._steps)
        further = self._further
        is_longer = len(further.losses) > len(self._runs.losses)
        return further if is_longer and further.harm(further.base) > HARM else None

    def _followed(self, remedy: TriedRemedy, further: Reruns) -> TriedRemedy:
        outcome = further.outcome(remedy.way)
        is_open = is_of_chance(further.harm(outcome), further.losses_of(outcome), further.losses)
        if is_open or (not remedy.cures and further.is_ill(outcome)):
            return remedy
        return over_more_steps(remedy, further, outcome, FURTHER * self._steps)
