"""Diagnosis of a program: its runs, its causes, remedies that were tried, and sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from ipu.run.advice import advice_for
from ipu.run.budget import Budget, TimeOverError
from ipu.run.causes.cause import Cause, is_beside_training, is_of_copies
from ipu.run.causes.finding import causes_forward, causes_of_updates, find_causes
from ipu.run.causes.harmless import harmless_losses
from ipu.run.confirming import Confirming
from ipu.run.diagnosis import LISTED, Diagnosis
from ipu.run.endpoints import Outcome
from ipu.run.harm import HARM, noise_of
from ipu.run.horizons import FURTHER
from ipu.run.lessening import follow_stochastic, mark_lessening
from ipu.run.remedies import (
    advised,
    by_module,
    drop_larger,
    joined_remedies,
    proposed_by,
    sort_remedies,
    told_by_changes,
    try_behind,
    try_scale_with_room,
    try_ways,
    with_wide_layers,
    without_halves,
    without_needless,
)
from ipu.run.reruns import Replay, Reruns, Sites, kinds_of_causes
from ipu.run.responses import harm_text
from ipu.run.restoring import FORWARD, PARAMETERS, PrecisionSite, Restoring
from ipu.run.rewritings import rewriting
from ipu.run.searching import find_responses, find_sites
from ipu.run.ways import Way

__all__ = ["diagnose"]

#: Kinds of causes that wrong results of a pass forward have behind them, too.
_SYMPTOMS = frozenset(("updates", "gradients vanish"))
#: Of a harm that no rule explains; what is given back to mend it is told behind it.
_NO_CAUSE = "The losses part from binary32's, and no number left its range on the way."
#: Of a cause that reaches no loss and no gradient.
_BESIDE = "The training is binary32's, and a number beside it is wrong, as a metric is"
#: Of one in tensors that are no parameters of an optimiser.
_BESIDE_PARAMETERS = ("The training is binary32's; what is wrong is beside it, in a tensor that no "
                      "optimiser updates, as an average of weights is")


def diagnose(
    replay: Replay, way: Way, steps: int, budget: Budget | None = None,
    sites: Sites | None = None, check: Callable[[Way], object] = str, *, has_windows: bool = False,
    tell: Callable[[Diagnosis], object] = id,
    longer: Callable[[int, Budget], Replay] | None = None,
) -> Diagnosis:
    """Why a program is harmed in a way, and what mends it; each statement was run.

    replay     runs the program, for so many steps and from the same seeds; its report has counted.
    budget     of the runs; None: as much as they take.
    sites      that a run with a report can give back; None: `sites_of` of the way's policy.
    check      raises ValueError for a way in which the program cannot be run.
    has_windows    sites may be given back in some of the steps alone.
    tell       is called with what an ill program's diagnosis is so far: after the first two runs,
               and when the advice has been tried.
    longer     a replay of so many steps, within a budget; None: no remedy is followed further.
    """
    by_policy = Reruns(replay, way, budget or Budget(), sites, check)
    runs = by_policy.as_written() or by_policy
    result = _seen(Diagnosis(way, steps), runs, is_of_halves=runs is not by_policy)

    def tell_so_far() -> None:
        result.runs, result.seconds = runs.runs, runs.budget.spent
        tell(result)

    unreached = (runs.base.report or {}).get("unreached")
    if unreached and not runs.base.error:
        result.answer = "cannot tell"
        result.sentence = f"Nothing was computed on the machine. {unreached}."
    elif not np.isfinite(runs.losses).all() or "diverges" in kinds_of_causes(runs.reference.report):
        result.answer = f"{result.beside} does not train here"
        result.report = runs.reference.report
        result.sentence = _sentence(find_causes(result.report), result.harm, runs.reference)
    elif runs.reference.error:
        result.answer = "cannot tell"
        result.sentence = f"The program stops in binary32 too: {runs.reference.error}"
    elif runs.is_undecided:
        result.answer, result.noise = "cannot tell", noise_of(result.losses, result.reference)
        result.sentence = _undecided(result)
    elif runs.is_ill(runs.base):
        result.answer = "ill"
        if result.harm <= HARM and any(map(is_beside_training, runs.causes[:1])):
            result.misprint = runs.misprint
        if result.is_of_halves:
            result.remedies.append(without_halves(by_policy, result.harm))
        else:
            _treat(result, runs, tell_so_far, longer, has_windows=has_windows)
    elif not result.reference:
        result.answer = "cannot tell"
        within = "" if result.left_out else f" in {steps} steps"
        result.sentence = (f"No backward pass began{within}, and no number was printed: nothing "
                           "to compare.")
    result.runs, result.seconds = runs.runs, runs.budget.spent
    return result


def _seen(result: Diagnosis, runs: Reruns, *, is_of_halves: bool) -> Diagnosis:
    """What the first two runs show."""
    result.losses, result.reference = runs.losses_of(runs.base), runs.losses
    result.is_of_halves, result.negligible = is_of_halves, runs.negligible
    if runs.printed is not None:
        result.measure = f"numbers in {runs.printed.line!r}"
    result.followed = runs.reference.report.get("followed", {})
    result.steps = result.followed.get("steps") or result.steps
    result.losses_of_step = runs.reference.report.get("losses_of_step", 1)
    result.is_evaluated = any(c.row.get("direction") == "evaluation" for c in runs.causes[:1])
    result.asks_status = bool(runs.base.report and runs.base.report.get("asks_status"))
    result.makes_halves = runs.is_narrow or any(
        report.get("makes_halves", False) for report in (runs.base.report, runs.reference.report)
        if report)
    result.beside = "binary64" if runs.is_narrow else "binary32"
    result.harm = runs.harm(runs.base)
    result.sentence = _sentence(runs.causes, result.harm, runs.base)
    result.report = runs.report if runs.base.report else {}
    result.harmless = list(harmless_losses(runs.report)) if runs.base.report else []
    return result


def _treat(
    result: Diagnosis, runs: Reruns, tell_so_far: Callable[[], None],
    longer: Callable[[int, Budget], Replay] | None, *, has_windows: bool,
) -> None:
    """Remedies and sites of a program that is ill."""
    tell_so_far()
    if runs.has_time():
        with suppress(TimeOverError):
            runs.weigh()
    result.sentence = _sentence(runs.causes, result.harm, runs.base)
    result.report = runs.report if runs.base.report else {}
    # Before sites are searched: a remedy takes one run, sites take many. The first one always has
    # time, as what is told of a program without one is of little use.
    try_ways(advised(runs, runs.report, runs.way), runs, result.remedies, first=True)
    if longer is not None:
        follow_stochastic(result.remedies, runs, longer, result.steps)
    try_ways(joined_remedies(result.remedies, runs), runs, result.remedies)
    try_behind(runs, result.remedies)
    if not any(remedy.cures for remedy in result.remedies):
        try_ways(by_module(runs), runs, result.remedies, first=True)
        try_ways(joined_remedies(result.remedies, runs), runs, result.remedies)
    try_ways(without_needless(result.remedies, runs), runs, result.remedies)
    mark_lessening(result.remedies, runs)
    sort_remedies(result.remedies, runs.way)
    with suppress(TimeOverError):
        try_scale_with_room(runs, result.remedies)
    confirming = Confirming(runs, longer, result.steps) if longer is not None else None
    if confirming is not None:
        confirming.first(result.remedies)
    tell_so_far()
    with suppress(TimeOverError):
        find_sites(result, runs)
    if result.sentence == _NO_CAUSE and result.necessary and result.is_smallest:
        places = ", ".join(map(str, result.necessary[:LISTED]))
        result.sentence += f" Precision is lost in {places}."
    tested = _tested_cause(result, runs)
    if tested is not None:
        result.sentence = _sentence([tested], result.harm, runs.base)
        result.remedies[:] = told_by_changes(result.remedies, runs)
        advice = advice_for(tested, runs.report, runs.way)
        try_ways(proposed_by([advice], runs, runs.report, runs.way), runs, result.remedies)
    for cause in [tested] if tested else runs.causes[:1]:
        result.rewriting = rewriting(cause, runs.report)
    try_ways(with_wide_layers(result, runs), runs, result.remedies)
    try_ways(joined_remedies(result.remedies, runs), runs, result.remedies)
    sort_remedies(result.remedies, runs.way)
    if confirming is not None:
        confirming.others(result.remedies)
    with suppress(TimeOverError):
        find_responses(result, runs, has_windows=has_windows)
    mark_lessening(result.remedies, runs)
    sort_remedies(result.remedies, runs.way)
    drop_larger(result.remedies, runs.way)


def _undecided(result: Diagnosis) -> str:
    """Why so few steps tell neither harm nor health, and what would."""
    return (f"The losses of {result.steps} steps part from {result.beside}'s by "
            f"{harm_text(result.harm)}, otherwise in each step: {harm_text(result.noise)} of it "
            f"may be chance, and from {harm_text(HARM)} on it is harm. More steps tell: --steps "
            f"{FURTHER * result.steps}, with --seconds for them.")


def _tested_cause(result: Diagnosis, runs: Reruns) -> Cause | None:
    """What the necessary sites tell, where another cause was told first, or none."""
    if not (result.is_smallest and result.necessary):
        return None
    first, layers = next(iter(runs.causes), None), {site.layer for site in result.necessary}
    if first is not None and first.kind in _SYMPTOMS:
        # They are lost behind a layer that gives too small or too large results, too. If they are
        # no longer when that layer is given back, they are a symptom of its.
        is_forward = {site.role for site in result.necessary} == {FORWARD}
        causes = causes_forward(runs.report, layers) if is_forward else []
    else:
        # What may stay low is to blame for nothing, where parameters may not. Their updates may be
        # few among all, and most of their way is lost with them.
        held = [site for site in result.necessary if site.role == PARAMETERS]
        is_led = first is None or first.layer not in layers or _take_more(held, first, runs)
        causes = causes_of_updates(runs.report, {s.layer for s in held}) if is_led else []
    return next(iter(causes), None)


def _take_more(sites: Sequence[PrecisionSite], first: Cause, runs: Reruns) -> bool:
    """Whether most of the harm goes with these sites, and not with the pass that a cause is in."""
    others = [site for site in runs.all_sites
              if site.layer == first.layer and site.role != PARAMETERS]
    if not (sites and others and runs.has_time()):
        return False
    with suppress(TimeOverError):
        ours, theirs = (runs.harm(runs.outcome(runs.way, Restoring(frozenset(group))))
                        for group in (sites, others))
        return ours < theirs / 2
    return False


def _sentence(causes: Sequence[Cause], harm: float, outcome: Outcome) -> str:
    """The first cause, and what stopped the program."""
    if causes and harm <= HARM and is_beside_training(causes[0]):
        beside = _BESIDE_PARAMETERS if is_of_copies(causes[0]) else _BESIDE
        text = f"{beside}: {causes[0].sentence}."
    elif causes:
        text = f"{causes[0].sentence}."
    elif outcome.error:
        return outcome.error
    elif harm > HARM:
        text = _NO_CAUSE
    else:
        text = "No harm was found."
    return f"{text} The program stops: {outcome.error}" if outcome.error else text
