"""What binds a plan: how much faster it would be without each of its limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ipu.plan.cycles import Rates, slots_time, update_time
from ipu.plan.memory import Peak, StageFigures, lives, peaks
from ipu.plan.plan import Plan
from ipu.plan.search import PlanRow, Search

__all__ = ["PlanBound", "bounds", "filled", "peaks_of"]


class PlanBound(NamedTuple):
    """A limit of a plan.

    cycles    of an update without the limit; total: with it.
    remedy    what moves the limit.
    """

    name: str
    cycles: float
    total: float
    remedy: str

    @property
    def share(self) -> float:
        """Of its time that an update takes less without the limit."""
        return 1 - self.cycles / self.total


def bounds(search: Search, row: PlanRow, rates: Rates | None = None) -> tuple[PlanBound, ...]:
    """What binds a plan of a search, the hardest first; what costs nothing is left out."""
    rates = rates or Rates(search.target)
    figures, plan = row.figures(search.chain), row.plan
    total = update_time(plan, figures, rates)
    rows = [_memory(search, row)]
    for name, remedy in (
        ("link", "cut where less crosses, or use fewer IPUs for a replica"),
        ("host", "use I/O tiles, or smaller elements of the feeds"),
        ("remote", "keep more on the chip"),
    ):
        fast = replace(rates, **{name: replace(getattr(rates, name), value=float("inf"))})
        words = {"link": "exchange between IPUs", "host": "host I/O", "remote": "remote memory"}
        rows.append(PlanBound(words[name], update_time(plan, figures, fast), total, remedy))
    even = _balanced(figures)
    rows += [
        PlanBound("stages of unequal work", update_time(plan, even, rates), total,
                  "smaller layers can be cut more evenly"),
        PlanBound("bubble", total - _bubble(plan, figures, rates), total,
                  "more micro-batches in an update, which changes its samples"),
        PlanBound("update", slots_time(plan, figures, rates), total,
                  "more micro-batches in an update, which changes its samples"),
    ]
    return tuple(sorted((r for r in rows if r.share > 1e-9), key=lambda r: -r.share))


def _memory(search: Search, row: PlanRow) -> PlanBound:
    """Plans that do not fit would be faster."""
    fastest = search.rows[0]
    cycles = row.cycles if search.fits(fastest) else min(fastest.cycles, row.cycles)
    return PlanBound(f"memory of {filled(search, fastest)}", cycles, row.cycles,
                     "smaller micro-batches, or formats of fewer bits")


def peaks_of(search: Search, row: PlanRow) -> list[Peak]:
    """The peak of each IPU of a plan."""
    return list(peaks(lives(row.plan, row.figures(search.chain))).values())


def filled(search: Search, row: PlanRow) -> str:
    """Where a plan needs most memory, and what fills it."""
    peak = max(peaks_of(search, row), key=lambda peak: peak.bytes)
    stages = [str(entry.stage) for entry in row.plan.entries if entry.ipu == peak.ipu]
    kind, size = max(peak.by_kind.items(), key=lambda item: item[1])
    where = "in the update" if peak.slot == row.plan.slots else f"in slot {peak.slot}"
    return (
        f"stage{'s' * (len(stages) > 1)} {', '.join(stages)} on IPU {peak.ipu} ({peak.bytes} bytes "
        f"{where}, of them {kind} {size})"
    )


def _balanced(figures: Sequence[StageFigures]) -> list[StageFigures]:
    """The same stages, all with the mean of their cycles."""
    def mean(cycles: Iterable[int]) -> int:
        return round(sum(cycles) / len(figures))

    forward = mean(f.forward_cycles for f in figures)
    backward = mean(f.backward_cycles for f in figures)
    update = mean(f.update_cycles for f in figures)
    return [
        replace(f, forward_cycles=forward, backward_cycles=backward, update_cycles=update)
        for f in figures
    ]


def _bubble(plan: Plan, figures: Sequence[StageFigures], rates: Rates) -> float:
    """Cycles in which the pipeline fills or drains: beyond those of as many slots in the middle."""
    twice, thrice = (
        slots_time(replace(plan, count=n * plan.count), figures, rates) for n in (2, 3)
    )
    bubble: float = slots_time(plan, figures, rates) - (thrice - twice)
    return max(bubble, 0.0)
