"""Remedies that take away most of a harm and not all: what is told of them, and for how long.

A remedy lessens the harm where it leaves half of it at most. Losses that part wander, so a remedy
that does nothing may come out so by chance. The control is a run whose results are all moved by a
unit in the last place: of its harm too a half is left at most. Numbers that stand still are moved
by any other one, so there the control would tell nothing; a remedy that does nothing leaves them as
they are.

Stochastic rounding is the remedy of terms that nearest rounding loses, and arrives in the mean of
many of them. So it is followed for more steps, beside binary32 and the run as it is, as long as
there is time: it cures where the run as it is is ill of these steps, and it is not.

Evidence    ASSUMED: the half, and the numbers of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ipu.run.budget import Budget, TimeOverError
from ipu.run.confirming import further_runs, over_more_steps
from ipu.run.diagnosis import TriedRemedy
from ipu.run.harm import HARM
from ipu.run.reruns import Replay, Reruns
from ipu.run.responses import harm_text
from ipu.run.restoring import Restoring

__all__ = ["follow_stochastic", "mark_lessening"]

#: Part of a harm that is left at most where it is lessened.
_LEFT = 0.5
#: Harm of a run that loses all that binary32's losses go through; more is compared as that.
_ALL = 1.0
#: How many times as many steps stochastic rounding is followed, and the runs of each number.
_FURTHER, _RUNS = (4, 16), 3


def mark_lessening(remedies: list[TriedRemedy], runs: Reruns) -> None:
    """Those that lessen the harm are told so, where there is time for the control."""
    before = runs.harm(runs.base)
    if not any(_leaves_little(remedy, before) for remedy in remedies):
        return
    with suppress(TimeOverError):
        before = min(before, _harm_of_control(runs))
        remedies[:] = [
            replace(remedy, lessens=_leaves_little(remedy, before)) for remedy in remedies]


def _leaves_little(remedy: TriedRemedy, before: float) -> bool:
    """Whether a remedy leaves some of this harm, and half of it at most."""
    is_of_all_steps = not (remedy.cures or remedy.steps)
    return is_of_all_steps and HARM < remedy.harm <= _LEFT * min(before, _ALL)


def _harm_of_control(runs: Reruns) -> float:
    """The harm of a run whose results are moved; of numbers that stand still, as it is."""
    if runs.stands_still:
        return runs.harm(runs.base)
    return runs.harm(runs.outcome(runs.way, Restoring(moved=frozenset(runs.all_sites))))


def follow_stochastic(
    remedies: list[TriedRemedy], runs: Reruns, longer: Callable[[int, Budget], Replay], steps: int
) -> None:
    """In place of stochastic rounding that lessens a standstill, what it does in more steps.

    longer    runs the program for so many steps.
    steps     of the diagnosis.
    """
    index = next((i for i, remedy in enumerate(remedies) if _is_stochastic(remedy, runs)), None)
    if index is None or not runs.stands_still:
        return
    for times in _FURTHER:
        if not runs.budget.has_time_for(_RUNS * times):
            return
        with suppress(TimeOverError):
            cure = _followed(remedies[index], runs, longer, times * steps)
            if cure is not None:
                remedies[index] = replace(
                    cure, what=f"{cure.what}, which arrives in the mean of many steps: the first "
                    f"{steps} leave {harm_text(remedies[index].harm)}")
                return


def _is_stochastic(remedy: TriedRemedy, runs: Reruns) -> bool:
    """Whether it is stochastic rounding and no more, and takes away some of the harm."""
    return remedy.way == replace(runs.way, sr=True) and not remedy.cures and (
        remedy.harm < remedy.before)


def _followed(
    remedy: TriedRemedy, runs: Reruns, longer: Callable[[int, Budget], Replay], steps: int
) -> TriedRemedy | None:
    """The remedy over so many steps, where it cures what is ill without it."""
    further = further_runs(runs, longer, steps)
    if not further.is_ill(further.base):
        return None
    outcome = further.outcome(remedy.way)
    return None if further.is_ill(outcome) else over_more_steps(remedy, further, outcome, steps)
