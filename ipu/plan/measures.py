"""What a schedule costs, counted from its programs: slots, cycles, what backward stages need.

The maker's guide has its own rule for held activations (`guide_stash`); the counts here follow from
the sources of the frameworks.

Source    Graphcore's TensorFlow, pipeline_visitor.cc; PopART, pipeline.cc; the guide's figures
          (sync lines stand between slots).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from ipu.plan.schedule import Phase, Program, Schedule

__all__ = [
    "cycles", "full_slots", "guide_stash", "held_between_slots", "latency", "peak_inside_slot",
    "utilisation",
]

#: Phases that run on I/O tiles, beside the others.
IO_PHASES = (Phase.INFEED, Phase.OUTFEED)


def guide_stash(schedule: Schedule | str, n_stages: int) -> tuple[int, ...]:
    """Activations in the queues of each stage by the rule of the maker's guide.

    2N+1, 2(N-1)+1, … for GROUPED and N+1 for INTERLEAVED. With N the number of the stages behind
    the first this is what GROUPED holds between slots; the guide does not define its N.

    >>> guide_stash("grouped", 4)
    (9, 7, 5, 3)
    """
    schedule = Schedule.parse(schedule)
    if schedule is Schedule.INTERLEAVED:
        return (n_stages + 1,) * n_stages
    if schedule is Schedule.SEQUENTIAL:
        raise ValueError("schedule='sequential': the guide has no rule for it; use 'grouped'")
    return tuple(2 * (n_stages - stage) + 1 for stage in range(n_stages))


def _held(work: Iterable[Program], inside: bool) -> tuple[int, ...]:
    """The most micro-batches of each stage between F and B, at slots' ends or inside slots."""
    ends: dict[int, int] = {}
    now: dict[int, int] = {}
    for _, group in groupby(work, key=lambda p: p.slot):
        for program in group:
            if program.branch or program.phase not in (Phase.FORWARD, Phase.BACKWARD):
                continue
            stage = program.stage
            now[stage] = now.get(stage, 0) + (1 if program.phase is Phase.FORWARD else -1)
            if inside:
                ends[stage] = max(ends.get(stage, 0), now[stage])
        if not inside:
            ends = {stage: max(ends.get(stage, 0), count) for stage, count in now.items()}
    return tuple(ends[stage] for stage in sorted(ends))


def held_between_slots(work: Iterable[Program]) -> tuple[int, ...]:
    """The most micro-batches whose F_i has run and whose B_i has not, at the end of a slot.

    >>> from ipu.plan.schedule import programs
    >>> held_between_slots(programs("grouped", 4, range(4), 8))
    (7, 5, 3, 1)
    """
    return _held(work, inside=False)


def peak_inside_slot(work: Iterable[Program]) -> tuple[int, ...]:
    """The most micro-batches of each stage that are held at any moment, B_i's own included.

    >>> from ipu.plan.schedule import programs
    >>> peak_inside_slot(programs("grouped", 4, range(4), 8))
    (8, 6, 4, 2)
    """
    return _held(work, inside=True)


def full_slots(work: Iterable[Program], both: bool = False) -> tuple[int, ...]:
    """Slots in which every IPU computes; with `both`, in which every IPU runs some F and some B.

    >>> from ipu.plan.schedule import programs
    >>> full_slots(programs("grouped", 4, range(4), 8))[0]
    3
    """
    rows = [p for p in work if p.phase in (Phase.FORWARD, Phase.BACKWARD)]
    ipus = {p.ipu for p in rows}
    sides = {(ipu, phase) for ipu in ipus for phase in (Phase.FORWARD, Phase.BACKWARD)}
    full = []
    for slot, group in groupby(rows, key=lambda p: p.slot):
        sides_of_group = {(p.ipu, p.phase) for p in group}
        if sides_of_group >= sides or (not both and {ipu for ipu, _ in sides_of_group} >= ipus):
            full.append(slot)
    return tuple(full)


def latency(work: Iterable[Program]) -> int:
    """Slots from a micro-batch's first program to its last, both counted.

    >>> from ipu.plan.schedule import programs
    >>> latency(programs("grouped", 4, range(4), 8)), latency(programs("grouped", 3, range(3), 6))
    (8, 6)
    """
    slots: dict[int, list[int]] = {}
    for program in work:
        slots.setdefault(program.micro_batch, []).append(program.slot)
    return max(max(s) - min(s) + 1 for s in slots.values())


def _slot_cycles(slot: Sequence[Program], cycles_of: Callable[[Program], float], how: str) -> float:
    """Cycles of one slot: I/O tiles work beside the others, the slot ends with the last of both."""

    def busiest(work: Iterable[Program]) -> float:
        sums: dict[int, float] = {}
        for program in work:
            sums[program.ipu] = sums.get(program.ipu, 0) + cycles_of(program)
        return max(sums.values(), default=0)

    beside = [p for p in slot if p.phase in IO_PHASES]
    rest = [p for p in slot if p.phase not in IO_PHASES]
    groups = [rest] if how == "slot" else [[p for p in rest if p.phase is f] for f in Phase]
    return max(busiest(beside), sum(busiest(group) for group in groups))


def cycles(
    work: Iterable[Program], cycles_of: Callable[[Program], float], sync: str = "slot"
) -> float:
    """Cycles of all slots.

    sync    "slot": IPUs wait for each other at the end of a slot; "group": also between the
            forward, backward and recomputing programs of a slot.

    >>> from ipu.plan.schedule import programs
    >>> cost = lambda p: 1 if p.phase is Phase.FORWARD else 2
    >>> cycles(programs("grouped", 4, range(4), 8), cost)
    33
    """
    if sync not in ("slot", "group"):
        raise ValueError(f"sync={sync!r} is no place where IPUs wait; use 'slot' or 'group'")
    slots = groupby(work, key=lambda p: p.slot)
    return sum(_slot_cycles(tuple(group), cycles_of, sync) for _, group in slots)


def utilisation(
    work: Iterable[Program], cycles_of: Callable[[Program], float], sync: str = "slot"
) -> float:
    """Share of the IPUs' cycles in which they run forward and backward programs.

    >>> from ipu.plan.schedule import programs
    >>> round(utilisation(programs("sequential", 4, range(4), 8), lambda p: 1), 2)
    0.25
    """
    rows = tuple(work)
    compute = [p for p in rows if p.phase in (Phase.FORWARD, Phase.BACKWARD)]
    total = cycles(rows, cycles_of, sync) * len({p.ipu for p in compute})
    return sum(map(cycles_of, compute)) / total if total else 0.0
