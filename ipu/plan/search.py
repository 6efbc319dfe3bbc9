"""Which plan: a search over cuts, schedules, recomputation, offload, shards and replicas.

Every plan of a search makes the same update, of the same micro-batches. Plans of one number of
replicas have the same bits; another number moves the order of a sum. Time is that of
`ipu.plan.cycles`, memory the largest peak of an IPU by `ipu.plan.memory`: declared models both.

Every choice but the cuts is tried. Of cuts all are tried where they are few; else first those at a
few boundaries that divide the work evenly, then what lies around the best of them.

Plans that differ in offload and shards alone are a family. Nothing in remote memory is the fastest
of it, everything there the smallest, so a family is left out whose fastest time and smallest memory
together are no better than a plan that is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ipu.machine.target import MK2, Target
from ipu.plan.arguments import OFFLOADS
from ipu.plan.chain import ChainRanges, Integers, LayerChain
from ipu.plan.cycles import Rates, update_time
from ipu.plan.memory import Load, StageFigures, capacity, code_bytes, loaded_bytes, loads
from ipu.plan.plan import Plan
from ipu.plan.schedule import required_multiple

__all__ = ["POPTORCH", "TENSORFLOW", "PlanRow", "PlanSpace", "Search", "front", "search"]

#: What front ends can choose: schedules with their modes of recomputation.
TENSORFLOW: Mapping[str, Sequence[str | None]] = {
    "grouped": (None, "then", "interleaved"), "interleaved": (None, "then"),
    "sequential": (None, "interleaved"),
}
POPTORCH: Mapping[str, Sequence[str | None]] = {"popart": ("interleaved",), "sequential": (None,)}
#: Plans with the same choices that are computed at once; where there are more, boundaries are few.
_MOST = 3000
#: Plans of a first round, over all choices, and the fewest of one choice.
_FIRST_ROUND, _FEWEST = 1_000_000, 100
#: Rounds of a search around the best cuts, and layers that a cut moves by.
_ROUNDS, _MOVES = 8, (-8, -3, -2, -1, 1, 2, 3, 8)


class PlanRow(NamedTuple):
    """A plan of a search.

    plan      without stages of its own; cuts: numbers of the layers that begin one.
    cycles    of one update; bytes: the largest peak of an IPU.
    """

    plan: Plan
    cuts: tuple[int, ...]
    cycles: float
    bytes: int

    def figures(self, chain: LayerChain) -> tuple[StageFigures, ...]:
        """Of its stages."""
        return chain.stages(self.cuts)


@dataclass(frozen=True)
class PlanSpace:
    """What may be chosen.

    ipus             at most.
    micro_batches    of one update, of all replicas.
    schedules        that are tried, each with its modes of recomputation.
    offloads         kinds of tensors in remote memory.
    replicas         exactly so many; None: all numbers that divide the micro-batches.
    shard_minimum    elements of the smallest tensor that is sharded.
    sends_all        outputs of every micro-batch go to the host, not of the last alone.
    """

    ipus: int
    micro_batches: int
    schedules: Mapping[str, Sequence[str | None]] = field(default_factory=lambda: TENSORFLOW)
    offloads: Sequence[tuple[str, ...]] = tuple(
        kinds for n in range(len(OFFLOADS) + 1) for kinds in combinations(OFFLOADS, n)
    )
    replicas: int | None = None
    shard_minimum: int = 0
    sends_all: bool = True

    def __post_init__(self) -> None:
        for name in ("ipus", "micro_batches", "replicas"):
            value = getattr(self, name)
            if name == "replicas" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r} is no number of them; use 1 or more")
        replicas = self.replicas or 1
        if self.micro_batches % replicas or replicas > self.ipus:
            raise ValueError(
                f"replicas={replicas} do not share micro_batches={self.micro_batches} on "
                f"ipus={self.ipus}; use a divisor of the micro-batches, at most {self.ipus}"
            )

    def plans(self, chain: LayerChain) -> Iterator[Plan]:
        """Every plan but for its cuts."""
        for n_stages, mapping in _mappings(chain, self.ipus):
            most = self.ipus // len(set(mapping))
            for replicas in range(1, most + 1):
                if self.micro_batches % replicas == 0 and self.replicas in (None, replicas):
                    yield from self._of(n_stages, mapping, replicas)

    def _of(self, n_stages: int, mapping: Sequence[int], replicas: int) -> Iterator[Plan]:
        count = self.micro_batches // replicas
        schedules = self.schedules
        if n_stages == 1:  # PopART has one slot for both passes of an only stage
            schedules = {"popart" if "popart" in schedules else "sequential": (None,)}
        for schedule, modes in schedules.items():
            for recompute in modes:
                try:
                    plan = Plan(
                        [_stage] * n_stages, mapping=mapping, schedule=schedule, count=count,
                        recompute=recompute, replicas=replicas, offload=(),
                        output_period=1 if self.sends_all else count,
                    )
                except ValueError:
                    continue  # the schedule refuses this combination
                for offload in self.offloads:
                    yield replace(plan, offload=offload)
                    if replicas > 1:
                        yield replace(
                            plan, offload=offload, shard_state=True,
                            shard_minimum=self.shard_minimum,
                        )


def _stage(*arguments: Any) -> Any:
    raise AssertionError("a plan of a search has no stages of its own; it is never run")


def _mappings(chain: LayerChain, ipus: int) -> Iterator[tuple[int, list[int]]]:
    """Stages and their IPUs; where layers share a variable the last stage may join the first."""
    for n in range(1, min(ipus, len(chain)) + 1):
        yield n, list(range(n))
        if chain.shared and n > 1 and n + 1 <= len(chain):
            yield n + 1, [*range(n), 0]


class Search(NamedTuple):
    """What a search has found.

    rows      the front: no plan that was tried is both faster and smaller.
    tried     plans; excluded: those of choices that a bound leaves out; of all that there are.
    room      bytes of an IPU.
    """

    chain: LayerChain
    target: Target
    space: PlanSpace
    rows: tuple[PlanRow, ...]
    tried: int
    excluded: int
    of_all: int
    room: int

    @property
    def best(self) -> PlanRow | None:
        """The fastest plan that fits beside as little code as there may be; None: none fits."""
        fitting = [row for row in self.rows if self.fits(row)]
        return min(fitting, key=lambda row: (row.cycles, row.bytes), default=None)

    def fits(self, row: PlanRow, *, surely: bool = False) -> bool:
        """Whether a plan fits an IPU beside its code: the least of it, or surely, the most."""
        return row.bytes + code_bytes(row.plan)[surely] <= self.room

    @property
    def smallest(self) -> PlanRow:
        """The plan that needs the least memory."""
        return min(self.rows, key=lambda row: (row.bytes, row.cycles))


def front(rows: Iterable[PlanRow]) -> tuple[PlanRow, ...]:
    """The rows that no other beats in both, the fastest first.

    >>> plan = Plan([abs])
    >>> rows = [PlanRow(plan, (), cycles, size) for cycles, size in [(3, 1), (1, 9), (4, 1)]]
    >>> [(row.cycles, row.bytes) for row in front(rows)]
    [(1, 9), (3, 1)]
    """
    best: list[PlanRow] = []
    for row in sorted(rows, key=_rank):
        if not best or row.bytes < best[-1].bytes:
            best.append(row)
    return tuple(best)


def _rank(row: PlanRow) -> tuple[float, ...]:
    """The faster, then the smaller, then the plainer plan comes first."""
    plan = row.plan
    return row.cycles, row.bytes, plan.n_ipus, plan.shard_state, len(plan.offloaded)


def evaluate(
    plan: Plan, ranges: ChainRanges, cuts: Integers, rates: Rates, asked: Asked | None = None
) -> tuple[NDArray[np.float64], Integers]:
    """Cycles of an update and the largest peak of an IPU, for each row of cuts.

    asked    of the memory of each IPU; None: it is found from the plan.
    """
    stages: Any = ranges.stages(cuts)
    cycles = update_time(plan, stages, rates) + np.zeros(len(cuts))
    peak = _peak(plan, stages, asked_of(plan) if asked is None else asked)
    return cycles, peak + np.zeros(len(cuts), np.int64)


#: Numbers of the stages of each IPU, and the different loads that its slots put on them.
Asked = Sequence[tuple[list[int], set[tuple[Load, ...]]]]


def _shortened(plan: Plan) -> Plan:
    """The plan with fewer micro-batches whose slots ask the same of the memory.

    A pipeline of N stages is full after 2N micro-batches; what follows repeats.
    """
    if plan.output_period not in (1, plan.count):
        return plan
    step = required_multiple(plan.schedule, plan.n_stages, plan.mapping)
    count = -(-4 * plan.n_stages // step) * step
    if count >= plan.count:
        return plan
    return replace(plan, count=count, output_period=1 if plan.output_period == 1 else count)


def asked_of(plan: Plan) -> Asked:
    """What the slots of a plan ask of each IPU's memory, each once."""
    rows, asked = loads(_shortened(plan)), []
    for ipu in plan.ipus:
        numbers = [entry.stage for entry in plan.entries if entry.ipu == ipu]
        asked.append((numbers, {tuple(row[number, 0] for number in numbers) for row in rows}))
    return asked


def _peak(plan: Plan, stages: Sequence[Any], asked: Asked) -> Any:
    """The largest peak of an IPU."""
    sizes: dict[Any, tuple[Any, Any]] = {}
    peaks = []
    for numbers, slots in asked:
        for of_slot in slots:
            total, work = 0, 0
            for number, load in zip(numbers, of_slot, strict=True):
                if (number, load) not in sizes:
                    rows = loaded_bytes(plan, number, stages[number], load)
                    temporary = rows.pop("work")
                    sizes[number, load] = sum(rows.values()), temporary
                more, temporary = sizes[number, load]
                total, work = total + more, np.maximum(work, temporary)
            peaks.append(total + work)
    return np.maximum.reduce(np.broadcast_arrays(*peaks)) if peaks else 0


def _allowed(plan: Plan, chain: LayerChain, cuts: Integers) -> NDArray[np.bool_]:
    """Rows of cuts in which layers that share a variable are on one IPU."""
    allowed = np.ones(len(cuts), bool)
    ipus = np.array([place[0] for place in plan.places])
    for layers in chain.shared:
        stages = [(cuts <= layer).sum(axis=1) for layer in layers]
        for stage in stages[1:]:
            allowed &= ipus[stage] == ipus[stages[0]]
    return allowed


class _Tried:
    """Rows of one plan, each row of cuts once."""

    def __init__(self, plan: Plan, ranges: ChainRanges, rates: Rates, asked: Asked) -> None:
        self.plan, self._ranges, self._rates, self._asked = plan, ranges, rates, asked
        self.rows: dict[tuple[int, ...], PlanRow] = {}
        self.tried = 0

    def try_all(self, cuts: Iterable[tuple[int, ...]]) -> None:
        """Compute these, but for those that were."""
        rows = [row for row in cuts if row not in self.rows]
        new = np.array(rows, np.int64).reshape(len(rows), self.plan.n_stages - 1)
        new = new[_allowed(self.plan, self._ranges.chain, new)]
        self.tried += len(new)
        if not len(new):
            return
        cycles, sizes = evaluate(self.plan, self._ranges, new, self._rates, self._asked)
        self.rows |= {
            tuple(row): PlanRow(self.plan, tuple(row), time, size)
            for row, time, size in zip(new.tolist(), cycles.tolist(), sizes.tolist(), strict=True)
        }

    @property
    def front(self) -> tuple[PlanRow, ...]:
        return front(self.rows.values())


def search(
    chain: LayerChain, space: PlanSpace, target: Target = MK2, rates: Rates | None = None
) -> Search:
    """The front of time and memory of all plans that were tried.

    Raises    ValueError for a chain without layers, and where no schedule takes the micro-batches.
    """
    if not len(chain):
        raise ValueError("chain has no layers; measure a program that runs a model")
    tables, best, excluded = _first_round(chain, space, rates or Rates(target))
    if not best:
        raise ValueError(_no_plan(chain, space))
    for _ in range(_ROUNDS):
        by_plan: dict[int, list[PlanRow]] = {}
        for row in best:
            by_plan.setdefault(id(row.plan), []).append(row)
        for table in tables:
            table.try_all(_around(by_plan.get(id(table.plan), ()), len(chain)))
        better = front((*best, *(row for table in tables for row in table.front)))
        if better == best:
            break
        best = better
    return Search(
        chain, target, space, best, tried=sum(table.tried for table in tables), excluded=excluded,
        of_all=sum(comb(len(chain) - 1, plan.n_stages - 1) for plan in space.plans(chain)),
        room=capacity(Plan([abs]), target),
    )


def _first_round(
    chain: LayerChain, space: PlanSpace, rates: Rates
) -> tuple[list[_Tried], tuple[PlanRow, ...], int]:
    """Tables of the plans that may be on the front, the front so far, and plans left out."""
    ranges, families = ChainRanges(chain), _families(space.plans(chain))
    most = max(_FEWEST, min(_MOST, _FIRST_ROUND // max(1, sum(map(len, families)))))
    boundaries = {
        n: _boundaries(chain, n, most) for n in {family[0].n_stages for family in families}
    }
    slots: dict[Any, Asked] = {}

    def table(plan: Plan) -> _Tried:
        kind = (
            plan.schedule, plan.places, plan.count, plan.recomputation,
            "activations" in plan.offloaded,
        )
        if kind not in slots:
            slots[kind] = asked_of(plan)
        result, n = _Tried(plan, ranges, rates, slots[kind]), plan.n_stages
        result.try_all(combinations(boundaries[n], n - 1))
        return result

    ends = [[table(plan) for plan in _ends(family)] for family in families]
    tables = [one for of_family in ends for one in of_family]
    best = front(row for one in tables for row in one.front)
    excluded = 0
    for family, of_family in zip(families, ends, strict=True):
        rest = [plan for plan in family if all(plan is not one.plan for one in of_family)]
        if _is_beaten(of_family, best):
            excluded += len(rest) * comb(len(chain) - 1, family[0].n_stages - 1)
            continue
        tables += [table(plan) for plan in rest]
    return tables, front((*best, *(row for one in tables for row in one.front))), excluded


def _families(plans: Iterable[Plan]) -> list[list[Plan]]:
    """Plans that differ in what is offloaded and sharded alone."""
    families: dict[Any, list[Plan]] = {}
    for plan in plans:
        key = plan.schedule, plan.places, plan.recomputation, plan.replicas
        families.setdefault(key, []).append(plan)
    return list(families.values())


def _ends(family: Sequence[Plan]) -> list[Plan]:
    """The plans of a family with the least and the most in remote memory; all, if no most holds."""
    least = frozenset.intersection(*(plan.offloaded for plan in family))
    most = frozenset.union(*(plan.offloaded for plan in family))
    ends = [plan for plan in family if plan.offloaded in (least, most)]
    return ends if {plan.offloaded for plan in ends} == {least, most} else list(family)


def _is_beaten(ends: Sequence[_Tried], best: Sequence[PlanRow]) -> bool:
    """Whether a plan is as fast as the fastest and as small as the smallest of a family."""
    rows = [row for table in ends for row in table.rows.values()]
    fastest = min((row.cycles for row in rows), default=float("inf"))
    smallest = min((row.bytes for row in rows), default=0)
    return any(
        row.cycles <= fastest and row.bytes <= smallest
        and (row.cycles, row.bytes) != (fastest, smallest)
        for row in best
    )


def _no_plan(chain: LayerChain, space: PlanSpace) -> str:
    """Why there is no plan at all."""
    return (
        f"micro_batches={space.micro_batches} on ipus={space.ipus}, replicas={space.replicas}: no "
        f"schedule of {', '.join(space.schedules)} takes them; use a multiple of {2 * space.ipus}"
    )


def _boundaries(chain: LayerChain, n_stages: int, most: int) -> list[int]:
    """Layers at which a stage may begin: all, or those with at most so many combinations.

    Boundaries fall one by one: that between the two neighbours which have the least work together.
    """
    edges = list(range(1, len(chain)))
    work = [layer.forward_cycles + layer.backward_cycles for layer in chain.layers]
    runs = [float(cycles) for cycles in work]
    while comb(len(edges), n_stages - 1) > most:
        pairs = [a + b for a, b in pairwise(runs)]
        least = min(range(len(pairs)), key=lambda i: (pairs[i], -chain.crossing(edges[i])))
        runs[least : least + 2] = [pairs[least]]
        del edges[least]
    return edges


def _around(rows: Iterable[PlanRow], n_layers: int) -> Iterator[tuple[int, ...]]:
    """Rows of cuts of which one or two neighbouring cuts are moved."""
    moved = set()
    for row in rows:
        cuts = row.cuts
        for i in range(len(cuts)):
            for move in _MOVES:
                one = (*cuts[:i], cuts[i] + move, *cuts[i + 1 :])
                moved.add(one)
                for other in _MOVES if i + 1 < len(cuts) else ():
                    moved.add((*one[: i + 1], one[i + 1] + other, *one[i + 2 :]))
    for cuts in moved:
        if all(a < b for a, b in zip((0, *cuts), (*cuts, n_layers), strict=True)):
            yield cuts
