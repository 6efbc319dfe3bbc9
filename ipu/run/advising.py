"""Advice and what became of it when it was tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ipu.run.advice import Advice, find_advice
from ipu.run.endpoints import Outcome
from ipu.run.judging import DEFAULT, Declaration
from ipu.run.looks import check_pairs
from ipu.run.text import advice_lines
from ipu.run.trials import Trial, TrialRun, Trials, combinations
from ipu.run.ways import Way

__all__ = ["Advised", "advise"]


@dataclass(frozen=True)
class Advised:
    """Items with their evidence, and the ways that were tried, the best first.

    declared    what was fixed before the trials.
    runs        in numbers: what the answers follow from.

    Its text is for a terminal.
    """

    items: Sequence[Advice]
    trials: Sequence[Trial] = ()
    declared: Declaration = DEFAULT
    runs: Sequence[TrialRun] = ()

    @property
    def best(self) -> Way | None:
        """The cheapest way that is as good as binary32; None where none is, or none ran."""
        first = self.trials[0] if self.trials else None
        return first.way if first is not None and first.judged.is_good else None

    def __str__(self) -> str:
        return "\n".join(advice_lines(self.items, self.trials, self.declared))


def advise(
    report: Mapping[str, Any], base: Way, run: Callable[[Way, int], Outcome] | None = None,
    trials: Iterable[str | Way] | None = None, declared: Declaration = DEFAULT,
    check: Callable[[Way], object] = str,
) -> Advised:
    """The advice that a report gives, tried where the program can be run again.

    base      the way of the report's run.
    run       runs the program in a way with a seed; None: nothing is tried.
    trials    ways to try, or their texts; None: those of the advice, and where none of them
              comes within the margin of binary32, their combinations.
    declared  endpoint, margin and number of pairs.
    check     raises ValueError for a way in which the program cannot be run; such ways are left
              out of the advice.

    Raises    TypeError for trials that are no list of ways or texts, and pairs that are no number;
              ValueError for fewer than five pairs.
    """
    items = [
        replace(item, ways=tuple(way for way in item.ways if _runs(way, check)))
        for item in find_advice(report, base)
    ]
    if run is None:
        return Advised(items)
    check_pairs(declared.pairs)
    base = base.with_policies
    ways = [way for item in items for way in item.ways] if trials is None else _read(trials, check)
    ways = list(dict.fromkeys(way.with_policies for way in ways))
    runs = Trials(run, base, declared)
    picked = runs.pick(ways)
    if trials is None and ways and not any(runs.estimate(w) < declared.endpoint.margin
                                           for w in picked):
        picked = runs.pick([*ways, *(w for w in combinations(ways, base) if _runs(w, check))])
    trials_table = runs.table(runs.confirm(picked))
    return Advised(items, trials_table, declared, runs.runs)


def _runs(way: Way, check: Callable[[Way], object]) -> bool:
    """Whether a way can be run."""
    try:
        check(way)
    except ValueError:
        return False
    return True


def _read(trials: Iterable[str | Way], check: Callable[[Way], object]) -> list[Way]:
    """Ways from their texts."""
    if isinstance(trials, str) or not all(isinstance(t, (str, Way)) for t in trials):
        raise TypeError(f"trials={trials!r} is no list of ways; use one, as ['fp16+sr', 'mixed']")
    ways = [Way.parse(t) if isinstance(t, str) else t for t in trials]
    for way in ways:
        check(way)
    return ways
