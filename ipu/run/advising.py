"""Advice and what became of it when it was tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ipu.run.advice import Advice, find_advice
from ipu.run.text import advice_lines
from ipu.run.trials import YES, Outcome, Trial, combinations, try_ways
from ipu.run.ways import Way

__all__ = ["Advised", "advise"]


@dataclass(frozen=True)
class Advised:
    """Items with their evidence, and the ways that were tried, the best first.

    Its text is for a terminal.
    """

    items: Sequence[Advice]
    trials: Sequence[Trial] = ()

    @property
    def best(self) -> Way | None:
        """The cheapest way that restores binary32's curve; None where none does or none ran."""
        first = self.trials[0] if self.trials else None
        return first.way if first is not None and first.restores == YES else None

    def __str__(self) -> str:
        return "\n".join(advice_lines(self.items, self.trials))


def advise(
    report: Mapping[str, Any], base: Way, run: Callable[[Way, int], Outcome] | None = None,
    trials: Iterable[str | Way] | None = None, seeds: int = 3,
    check: Callable[[Way], object] = str,
) -> Advised:
    """The advice that a report gives, tried where the program can be run again.

    base      the way of the report's run.
    run       runs the program in a way with a seed; None: nothing is tried.
    trials    ways to try, or their texts; None: those of the advice, and where none of them
              restores binary32's curve, their combinations.
    seeds     runs of each way, from seed 0 on.
    check     raises ValueError for a way in which the program cannot be run; such ways are left
              out of the advice.

    Raises    TypeError for trials that are no list of ways or texts, and seeds that are no number;
              ValueError for fewer than two seeds, which show no spread.
    """
    items = [
        replace(item, ways=tuple(way for way in item.ways if _runs(way, check)))
        for item in find_advice(report, base)
    ]
    if run is None:
        return Advised(items)
    if not isinstance(seeds, int):
        raise TypeError(f"seeds={seeds!r} is no number of runs; use 2 or more")
    if seeds < 2:
        raise ValueError(f"seeds={seeds} shows no spread; use 2 or more")
    base = base.with_policies
    ways = [way for item in items for way in item.ways] if trials is None else _read(trials, check)
    ways = list(dict.fromkeys(way.with_policies for way in ways))
    outcomes_by_run: dict[tuple[Way, int], Outcome] = {}

    def once(way: Way, seed: int) -> Outcome:
        if (way, seed) not in outcomes_by_run:
            outcomes_by_run[way, seed] = run(way, seed)
        return outcomes_by_run[way, seed]

    tried = try_ways(once, ways, base, range(seeds))
    if trials is None and ways and tried[0].restores != YES:
        more = [way for way in combinations(ways, base) if _runs(way, check)]
        tried = try_ways(once, [*ways, *more], base, range(seeds))
    return Advised(items, tried)


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
