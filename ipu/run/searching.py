"""The search for sites: which are necessary for a harm, which sufficient, and how they respond."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fpsim.records.formats import BINARY32, Format, find_number_format
from ipu.run.births.kinds import OF_OPERANDS
from ipu.run.budget import TimeOverError
from ipu.run.diagnosis import Diagnosis
from ipu.run.endpoints import Outcome
from ipu.run.reruns import ROUNDS, Reruns
from ipu.run.responses import Dose, doses_above, pair_responses, smallest_window
from ipu.run.restoring import (
    BACKWARD,
    FORWARD,
    LAYER,
    PARAMETERS,
    SUMS,
    UPDATE,
    PrecisionSite,
    Restoring,
    role_of,
)
from ipu.run.subsets import smallest
from ipu.run.ways import Way

__all__ = ["find_responses", "find_sites"]

#: Sites that are paired, at most.
_PAIRED = 4
#: Roles whose results may be rounded to a dose; windows of steps are of the first two.
_OF_RESULTS = (FORWARD, BACKWARD, LAYER)


def find_sites(result: Diagnosis, runs: Reruns) -> None:
    """The necessary and the sufficient sites, and those that chance cures."""
    sites = runs.all_sites
    result.n_sites, result.is_smallest = len(sites), not sites
    if not sites or not runs.has_time():
        return
    result.is_smallest = runs.is_ill_with(sites)
    if result.is_smallest:
        return

    def cures(back: Sequence[PrecisionSite]) -> bool:
        with suppress(TimeOverError):
            return not runs.is_ill_with(back)
        return False

    def harms(low: Sequence[PrecisionSite]) -> bool:
        back = Restoring(frozenset(site for site in sites if site not in low))
        with suppress(TimeOverError):
            outcome = runs.outcome(runs.way, back)
            # A run that stops for another reason than the first one says nothing of these sites.
            return outcome.error in ("", runs.base.error) and runs.is_harmed(outcome)
        return False

    result.necessary = list(sites)
    suspects = next(_few_that_cure(result, runs, sites), sites)
    result.necessary, is_smallest = smallest(
        _one_role(suspects, cures), cures, runs.has_time_to_search)
    likely = _named(runs, sites), result.necessary
    enough = next((few for few in likely if few and harms(few)), None) or _one_role(sites, harms)
    result.sufficient, is_tried = smallest(enough, harms, runs.has_time_to_search)
    result.is_smallest = is_smallest and is_tried and not runs.budget.is_over
    if runs.stands_still:  # a unit in the last place moves what stands still
        return
    result.chance = [
        site for site in result.necessary
        if site.role not in (UPDATE, SUMS) and runs.has_time() and not runs.is_ill_with((), [site])
    ]


def _named(runs: Reruns, sites: Sequence[PrecisionSite]) -> list[PrecisionSite]:
    """The site that the first cause names, if there is one; of lost updates their parameters."""
    row = runs.causes[0].row if runs.causes else {}
    is_of_updates = bool(runs.causes) and runs.causes[0].kind == "updates"
    role = PARAMETERS if is_of_updates else role_of(row.get("direction", FORWARD))
    layer = "optimizer" if role == UPDATE else row.get("layer", "")
    places = PrecisionSite(layer, role), PrecisionSite(layer, LAYER)
    return [site for site in sites if site in places]


def _few_that_cure(
    result: Diagnosis, runs: Reruns, sites: Sequence[PrecisionSite]
) -> Iterator[Sequence[PrecisionSite]]:
    """Few sites that cure together, from which the search may begin; the fewest first."""
    cures = [_restored_by(remedy.way, runs.way, sites)
             for remedy in result.remedies if remedy.cures]
    for few in (_named(runs, sites), *sorted(cures, key=len)):
        if few and runs.has_time_to_search() and not runs.is_ill_with(few):
            yield few
    suspects = _suspects(runs, sites)
    if suspects:
        yield suspects


def _restored_by(
    way: Way, base: Way, sites: Sequence[PrecisionSite]
) -> list[PrecisionSite]:
    """The sites that a way computes in binary32 and its base does not."""
    def is_wide(site: PrecisionSite, way: Way) -> bool:
        policy = way.policy.of(site.layer)
        if site.role == UPDATE:
            return way.changes.wide_states
        return {PARAMETERS: policy.param, SUMS: policy.partials}.get(
            site.role, policy.compute) == BINARY32

    return [site for site in sites if is_wide(site, way) and not is_wide(site, base)]


def find_responses(result: Diagnosis, runs: Reruns, *, has_windows: bool) -> None:
    """The window, the pairs and the doses of the necessary sites, as far as there is time."""
    sites = frozenset(result.necessary)
    if not sites or not result.is_smallest:
        return

    def restored(**choices: Any) -> Outcome:
        return runs.outcome(runs.way, Restoring(sites, **choices))

    roles = {site.role for site in sites}
    if has_windows and runs.has_steps and roles <= {FORWARD, BACKWARD} and runs.has_time():
        result.window = smallest_window(
            result.steps, lambda steps: not runs.is_harmed(restored(steps=steps)))
    if len(sites) <= _PAIRED:
        result.pairs.extend(pair_responses(
            result.necessary, lambda back: runs.harm(runs.outcome(runs.way, Restoring(back))),
            runs.has_time))
    low = _narrow_format(runs)
    for fmt in doses_above(low) if roles <= set(_OF_RESULTS) and runs.shows_results else ():
        if runs.has_time():
            outcome = restored(dose=fmt)
            result.doses.append(Dose(fmt, runs.harm(outcome), not runs.is_harmed(outcome)))


def _narrow_format(runs: Reruns) -> Format:
    """The format that doses widen: that of the results, or of operands whose cast does the harm."""
    row = next((cause.row for cause in runs.causes[:1]), {})
    if row.get("detail") == OF_OPERANDS:
        return find_number_format(row["format"])
    return runs.way.policy.default.activations


def _suspects(
    runs: Reruns, sites: Sequence[PrecisionSite]
) -> Sequence[PrecisionSite]:
    """Sites where numbers left their range, if the harm goes with them; else none.

    A NaN hides what would go wrong behind it: with the sites of its births in binary32 other births
    may show, whose sites are added. So the search begins with few sites in place of all.
    """
    suspects: list[PrecisionSite] = []
    outcome = runs.base
    for _ in range(ROUNDS):
        places = _sites_of_births(runs.beside_binary32(outcome))
        new = [site for site in sites if site in places and site not in suspects]
        if not new or not runs.has_time_to_search():
            return ()
        suspects += new
        outcome = runs.outcome(runs.way, Restoring(frozenset(suspects)))
        if not runs.is_harmed(outcome):
            return suspects
    return ()


def _sites_of_births(report: Mapping[str, Any]) -> set[PrecisionSite]:
    """Where numbers left their range with harm; the arithmetic of optimisers is one site."""
    places: set[PrecisionSite] = set()
    for row in report["births"]:
        role = role_of(row["direction"])
        if not row["harmless"]:
            places |= {PrecisionSite("optimizer", UPDATE)} if role == UPDATE else {
                PrecisionSite(row["layer"], role), PrecisionSite(row["layer"], LAYER)}
    return places


def _one_role(
    sites: Sequence[PrecisionSite], holds: Callable[[Sequence[PrecisionSite]], bool]
) -> Sequence[PrecisionSite]:
    """The sites of one role, where it holds for them alone; else all."""
    for role in dict.fromkeys(site.role for site in reversed(sites)):
        of_role = [site for site in sites if site.role == role]
        if holds(of_role):
            return of_role
    return sites
