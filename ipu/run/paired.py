"""One program in several ways, pair by pair: which ways are as good as the first of them.

What is declared is fixed before the first run. Before the pairs, two runs of one pair show whether
the program repeats, and runs that differ by a unit in the last place show the noise that no pairing
takes away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fpsim.state.processor import usual_arithmetic
from ipu.run.endpoints import Outcome, progress_of, start_loss
from ipu.run.judging import CANNOT_TELL, REFERENCE, Declaration, Judged, judge, settled
from ipu.run.looks import LOOKS, pairs_needed
from ipu.run.verdict import Effect, over_seeds

__all__ = ["Comparison", "PairedJob", "compare_pairs"]

#: Pairs of runs that measure the noise floor.
_FLOOR = 3
#: A floor that asks for so many times the pairs that may run ends the comparison before them.
_HOPELESS = 4
#: First losses that differ by more of the reference's were not computed from equal weights.
_STEP_0 = 0.1


@dataclass(frozen=True)
class PairedJob:
    """A run to be made: a way by its place, the pair, and whether it is nudged.

    nudged    parameters are moved by a unit in the last place after the first update.
    """

    way: int
    pair: int
    nudged: bool = False


#: Makes runs, side by side if it can.
RunJobs = Callable[[Sequence[PairedJob]], list[Outcome]]


@dataclass
class Comparison:
    """Ways and what is known of them.

    reference    the place of the way that others are compared with.
    judged       by way; empty where nothing can be judged.
    notes        what a reader must know.
    floor        the noise that pairing leaves: of the reference, between it and it nudged.
    """

    declared: Declaration
    ways: Sequence[str]
    reference: int
    outcomes: list[list[Outcome]]
    judged: dict[int, Judged] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    floor: Effect | None = None

    @property
    def rows(self) -> Iterator[tuple[str, int, float, float, float]]:
        """Of the table from which the answers follow: way, pair, start, endpoint, difference."""
        references = self.outcomes[self.reference]
        for name, runs in zip(self.ways, self.outcomes, strict=True):
            n = min(len(runs), len(references))
            differences = self.declared.endpoint.differences(runs[:n], references[:n])
            for pair, (run, difference) in enumerate(zip(runs, differences, strict=False)):
                yield (name, pair, start_loss(run.losses), self.declared.endpoint.measure(run),
                       float(difference))

    @property
    def lines(self) -> Iterator[str]:
        """The answers, one for each way."""
        for place, name in enumerate(self.ways):
            if place == self.reference:
                yield f"{name}  {REFERENCE}"
            elif place in self.judged:
                judged = self.judged[place]
                yield f"{name}  {judged}, worse by {judged.difference}, {judged.pairs} pairs"


def compare_pairs(
    declared: Declaration, ways: Sequence[str], reference: int, first: Sequence[Outcome],
    run: RunJobs, *, tell: Callable[[str], object],
) -> Comparison:
    """Judge the ways, look by look, until each has its answer or the pairs are used up.

    first    the runs of pair 0, which have been made.
    tell     is called with each note, as it becomes known.
    """
    comparison = Comparison(declared, ways, reference, [[outcome] for outcome in first])

    def note(text: str) -> None:
        comparison.notes.append(text)
        tell(text)

    reason = _why_not(comparison)
    if reason:
        note(f"no verdict: {reason}")
        return comparison
    for text in _starts(comparison):
        note(text)
    again, *nudged = run([
        PairedJob(reference, 0), *(PairedJob(reference, p, nudged=True) for p in range(_FLOOR)),
    ])
    if not _equal(again, first[reference]):
        note(
            f"two runs of pair 0 in {ways[reference]} differ: the program takes a seed from the "
            "clock or the system, or has an order of its own; pairs are not paired, and more of "
            "them are needed"
        )
    _more_runs(comparison, [reference], LOOKS[0] if declared.looks else 1, run)
    if _all_equal(comparison.outcomes[reference]):
        note(
            "no verdict: the pairs are one run again and again, as the program sets seeds that "
            "fpsim does not move (torch.Generator, random.Random, RandomState, a file); let it "
            "use the global generators"
        )
        return comparison
    if not _floor_allows(comparison, nudged, note):
        return comparison
    for n in declared.looks:
        _look(comparison, n, run)
        if all(map(settled, comparison.judged.values())):
            break
    for text in comparison.lines:
        tell(text)
    return comparison


def _why_not(comparison: Comparison) -> str:
    """Why nothing can be judged; "" where it can."""
    declared, outcomes = comparison.declared, comparison.outcomes
    if len(comparison.ways) < 2:
        return "one way has nothing beside it"
    if not declared.looks:
        return f"pairs={declared.pairs} is fewer than {LOOKS[0]}"
    first = outcomes[comparison.reference][0]
    name = comparison.ways[comparison.reference]
    if first.error:
        return f"the program does not run in {name}: {first.error}"
    if declared.endpoint.is_loss and not first.losses:
        return (
            f"{name} tells no losses; name a number that the program prints: "
            "--endpoint highest:accuracy --margin 0.01"
        )
    try:
        declared.endpoint.measure(first)
    except ValueError as error:
        return str(error)
    return ""


def _starts(comparison: Comparison) -> Iterator[str]:
    """Step 0 of each way beside the reference's: equal weights give nearly equal losses."""
    reference = comparison.outcomes[comparison.reference][0].losses
    for place, (name, (first, *_)) in enumerate(
        zip(comparison.ways, comparison.outcomes, strict=True)
    ):
        if place == comparison.reference or not first.losses or not reference:
            continue
        here, there = first.losses[0], reference[0]
        if not math.isfinite(here) or abs(here - there) > _STEP_0 * abs(there):
            yield (
                f"step 0: {name} begins at a loss of {here:.4g}, "
                f"{comparison.ways[comparison.reference]} at {there:.4g}: its first pass forward "
                "differs already, or its initial weights do"
            )


def _equal(one: Outcome, other: Outcome) -> bool:
    """Whether two runs are the same, by their losses; NaN equals NaN."""
    return np.array_equal(np.asarray(one.losses), np.asarray(other.losses), equal_nan=True)


def _all_equal(outcomes: Sequence[Outcome]) -> bool:
    return len(outcomes) > 1 and all(_equal(outcomes[0], other) for other in outcomes[1:])


@usual_arithmetic
def _floor_allows(
    comparison: Comparison, nudged: Sequence[Outcome], note: Callable[[str], None]
) -> bool:
    """Whether the margin is within reach of the pairs that may run."""
    declared, endpoint = comparison.declared, comparison.declared.endpoint
    references = comparison.outcomes[comparison.reference][:_FLOOR]
    if not np.isfinite(progress_of(references)).all():
        return True
    floor = endpoint.differences(nudged, references)
    if not np.isfinite(floor).all():
        return True
    # The mean of the floor is 0 by its making.
    deviation = float(np.sqrt(np.mean(np.square(floor))))
    comparison.floor = over_seeds(floor)
    if all(map(_equal, nudged, references)):
        return True  # nothing was moved: no parameter is binary32
    needs = pairs_needed(deviation, endpoint.margin)
    many = f"{needs} pairs" if needs else "more pairs than anyone runs"
    text = f"noise floor: a unit in the last place moves the endpoint by {endpoint.text(deviation)}"
    if needs is None or needs > _HOPELESS * declared.pairs:
        note(f"{text}; no verdict: cannot tell, {many} would be needed")
        comparison.judged = {
            place: Judged(CANNOT_TELL, endpoint, needs=needs, note=f"{many} by the noise floor")
            for place in range(len(comparison.ways)) if place != comparison.reference
        }
        return False
    note(text + (f", which may need {many}" if needs > declared.pairs else ""))
    return True


def _look(comparison: Comparison, n: int, run: RunJobs) -> None:
    """Run what is missing of so many pairs, and judge the ways that are not settled."""
    reference, endpoint = comparison.reference, comparison.declared.endpoint
    left = [
        place for place in range(len(comparison.ways)) if place != reference
        and not (place in comparison.judged and settled(comparison.judged[place]))
    ]
    _more_runs(comparison, [reference, *left], n, run)
    for place in left:
        comparison.judged[place] = judge(
            endpoint, comparison.outcomes[place][:n], comparison.outcomes[reference][:n],
            reference=comparison.ways[reference],
        )


def _more_runs(comparison: Comparison, places: Sequence[int], n: int, run: RunJobs) -> None:
    """Runs of these ways up to so many pairs."""
    jobs = [
        PairedJob(place, pair) for place in places
        for pair in range(len(comparison.outcomes[place]), n)
    ]
    for job, outcome in zip(jobs, run(jobs), strict=True):
        comparison.outcomes[job.way].append(outcome)
