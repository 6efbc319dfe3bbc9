"""Cycles of a plan: a timeline of what every IPU does, with copies, transfers and waiting.

A declared model, never promised time. In a slot an IPU first fetches what it needs from the host
and from remote memory, then runs its programs, then writes back; IPUs wait for each other, and
outputs go to the IPUs of the neighbouring stages. With I/O tiles the host's transfers run beside
the slot. Behind the last slot replicas sum their gradients and every IPU updates its variables.
The bandwidths are ASSUMED: no source of ours gives one that a program reaches. Where sources
disagree, or none says, `Rates.span` has both ends, and times become intervals.

Source    Graphcore's data sheet of the Bow-2000 (IPU-Link: 512 Gbit/s) and block diagram of the
          IPU-M2000 (an IPU reaches gateway, memory and host by PCIe Gen4 ×8; two IPUs of a pair
          reach each other by six times that).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from fpsim.records.evidence import Evidence, Fact
from ipu.machine.target import MK2, Target
from ipu.plan.memory import (
    StageFigures,
    Transfer,
    figures_of,
    transfers_of,
    update_program,
)
from ipu.plan.plan import Entry, Plan
from ipu.plan.schedule import Phase, Places, Program, Schedule, programs

__all__ = [
    "HOST", "LANES", "LINK", "REMOTE", "Copy", "Event", "Rates", "Share", "compute_cycles",
    "copies", "program_cycles", "remote_share", "shares", "slots_time", "timeline",
    "update_time", "waits",
]

_ASSUMED = Evidence.ASSUMED
LINK = Fact(160e9, _ASSUMED, "bytes per second between two IPUs; declared")
REMOTE = Fact(20e9, _ASSUMED, "bytes per second from and to remote memory; declared")
HOST = Fact(20e9, _ASSUMED, "bytes per second from and to the host; declared")
IN_PLACE = Fact(0.0, _ASSUMED, "share of the operands of products that come from other tiles")
#: The other ends, where sources disagree or none says.
QUOTED_CLOCK = Fact(1.33e9, Evidence.INFERRED, "commonly quoted for Mk2")
SLOW_LINK = Fact(64e9, Evidence.DOCUMENTED, "data sheet of the Bow-2000: IPU-Link, 512 Gbit/s")
SLOW_REMOTE = Fact(15.75e9, Evidence.INFERRED, "PCIe Gen4 ×8: block diagram of the IPU-M2000")
SLOW_HOST = Fact(15.75e9, Evidence.INFERRED, "PCIe Gen4 ×8: block diagram of the IPU-M2000")
K_STAYS = Fact(0.0, _ASSUMED, "share of the products that split K over tiles where it is cheaper")
K_SPLIT = Fact(1.0, _ASSUMED, "share of the products that split K over tiles where it is cheaper")
ELSEWHERE = Fact(1.0, _ASSUMED, "share of the operands of products that come from other tiles")

#: Entry and figures of each stage and branch.
Table = Mapping[tuple[int, int], tuple[Entry, StageFigures]]
#: Where an event stands in a picture: the IPU's tiles, its links, its transfers.
LANES = ("compute", "exchange", "remote", "host")


class Event(NamedTuple):
    """One bar of a picture.

    start, cycles    in cycles from the start of the update.
    kind             a phase's value, or of a transfer what it moves.
    """

    start: float
    cycles: float
    slot: int
    ipu: int
    lane: str
    kind: str
    stage: int
    micro_batch: int


class Copy(NamedTuple):
    """Activations of F, or their gradient of B, to another IPU at the end of a slot."""

    program: Program
    target: int
    bytes: int


class Share(NamedTuple):
    """Cycles of one IPU by lane; idle is what no lane covers."""

    ipu: int
    total: float
    by_lane: dict[str, float]
    idle: float


@dataclass(frozen=True)
class Rates:
    """Bytes per second of copies and transfers, and the clock that turns them into cycles.

    >>> Rates().cycles(160e9, "link") == MK2.clock.value
    True
    """

    target: Target = MK2
    link: Fact = LINK
    remote: Fact = REMOTE
    host: Fact = HOST
    operands: Fact = IN_PLACE
    split: Fact = K_STAYS

    @classmethod
    def span(cls, target: Target) -> tuple[Rates, Rates]:
        """The fastest and the slowest rates that our sources allow.

        >>> fast, slow = Rates.span(MK2)
        >>> fast.target.clock.value, slow.link.value
        (1330000000.0, 64000000000.0)
        """
        if target.tiles != MK2.tiles:  # the sources are about machines with Mk2
            return cls(target, split=K_SPLIT), cls(target, operands=ELSEWHERE)
        quoted = replace(target, clock=QUOTED_CLOCK)
        fast = cls(quoted if target.clock == MK2.clock else target, split=K_SPLIT)
        return fast, cls(target, SLOW_LINK, SLOW_REMOTE, SLOW_HOST, ELSEWHERE)

    def cycles(self, n_bytes: float, by: str) -> float:
        """Cycles of that many bytes over the "link", from "remote" memory or the "host"."""
        fact: Fact = {"link": self.link, "remote": self.remote, "host": self.host}[by]
        cycles: float = n_bytes * self.target.clock.value / fact.value
        return cycles

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What the cycles rest on."""
        return (self.target.clock, self.link, self.remote, self.host, self.operands, self.split)


def compute_cycles(product_cycles: int, vector_cycles: int, target: Target) -> int:
    """Cycles of a program: of its products, and of vector work spread over all worker threads.

    >>> compute_cycles(1000, 8833, MK2)
    1002
    """
    threads: int = target.tiles.value * target.workers.value
    return product_cycles + -(-vector_cycles // threads)


def program_cycles(
    plan: Plan, figures: Sequence[StageFigures], rates: Rates | None = None
) -> Callable[[Program], float]:
    """Cycles of compute of every program; with sharded state an update does its R-th share.

    rates    say where operands come from, and whether K is split; None: neither.
    """
    operands = 0.0 if rates is None else rates.operands.value
    split = 0.0 if rates is None else rates.split.value
    table = figures_of(plan, figures)
    shards = plan.replicas if plan.shard_state else 1

    def cycles_of(program: Program) -> float:
        stage = table[program.stage, program.branch][1]
        if program.phase is Phase.UPDATE:
            return -(-stage.update_cycles // shards)
        if program.phase is Phase.RECOMPUTE and stage.recompute_cycles is not None:
            return stage.recompute_cycles
        if program.phase in (Phase.FORWARD, Phase.RECOMPUTE):
            more = operands * stage.forward_exchange - split * stage.forward_saving
            return stage.forward_cycles + more
        if program.phase is Phase.BACKWARD:
            more = operands * stage.backward_exchange - split * stage.backward_saving
            return stage.backward_cycles + more
        return 0

    return cycles_of


def copies(plan: Plan, figures: Sequence[StageFigures]) -> tuple[Copy, ...]:
    """Copies between IPUs: outputs of F to the next position, gradients of B to the one before."""
    table = figures_of(plan, figures)
    return tuple(copy for program in plan.programs for copy in _copies_of(table, program))


def _copies_of(table: Table, program: Program) -> list[Copy]:
    """Those of one program."""
    step = {Phase.FORWARD: 1, Phase.BACKWARD: -1}.get(program.phase, 0)
    if not step:
        return []
    stage = table[program.stage, program.branch][1]
    rows = []
    for entry, neighbour in table.values():
        if entry.stage == program.stage + step and entry.ipu != program.ipu:
            size = stage.output_bytes if step > 0 else neighbour.output_bytes
            if np.any(size):
                rows.append(Copy(program, entry.ipu, size))
    return rows


def _latest(ends: Iterable[Any]) -> Any:
    """The last of several ends; of arrays, element by element."""
    rows = list(ends)
    if any(isinstance(end, np.ndarray) for end in rows):
        return reduce(np.maximum, rows)
    return max(rows)


class _Clock:
    """One plan, slot by slot.

    events    of the slots so far; None: only the time counts, and figures may be arrays, of as
              many plans at once.
    """

    def __init__(
        self, plan: Plan, table: Table, cycles_of: Callable[[Program], float], rates: Rates,
        events: list[Event] | None,
    ) -> None:
        self.plan, self.table, self.rates, self.events = plan, table, rates, events
        self.cycles_of = cycles_of
        self.now: Any = 0.0
        #: Cycles and copies of programs that differ in the micro-batch alone, without events.
        self._lengths: dict[Any, Any] = {}
        self._copies: dict[Any, list[Copy]] = {}

    def put(self, start: Any, cycles: Any, program: Program, lane: str, kind: str) -> Any:
        """The end of an event of a program, which is kept when it takes time."""
        if self.events is not None and cycles:
            where = (program.slot, program.ipu, lane, kind, program.stage, program.micro_batch)
            self.events.append(Event(start, cycles, *where))
        return start + cycles

    def moved(self, start: Any, rows: Iterable[Transfer], direction: str) -> Any:
        """The end of transfers of one IPU in a direction, one after the other."""
        for row in rows:
            if row.direction == direction:
                cycles = self.rates.cycles(row.bytes, "remote")
                start = self.put(start, cycles, row.program, "remote", f"{row.kind} {direction}")
        return start

    def fed(self, program: Program, start: Any, kind: str) -> Any:
        """The end of the transfer that feeds a program, or takes its results."""
        stage = self.table[program.stage, program.branch][1]
        size = stage.infeed_bytes if kind == "infeed" else stage.outfeed_bytes
        if kind == "outfeed" and not self.plan.sends(program):
            return start
        cycles = self.rates.cycles(size, "host")
        return self.put(start, cycles, program, "host", kind)

    def slot(self, work: Sequence[Program]) -> None:
        """A slot: IPUs side by side, each one thing after the other; then copies."""
        io = (Phase.INFEED, Phase.OUTFEED)
        lanes: dict[int, Any] = {}
        for program in work:
            if program.phase in io:
                start = lanes.get(program.ipu, self.now)
                lanes[program.ipu] = self.fed(program, start, program.phase.value)
        beside = list(lanes.values())
        rest = [p for p in work if p.phase not in io]
        groups = [rest]
        if self.plan.sync == "group":
            groups = [of_phase for f in Phase if (of_phase := [p for p in rest if p.phase is f])]
        for group in groups:
            ends = dict.fromkeys(self.plan.ipus, self.now)
            for program in group:
                ends[program.ipu] = self.run(program, ends[program.ipu])
            self.now = _latest(ends.values())
        self.now = _latest([self.now, *beside])
        self.exchange([copy for program in work for copy in self.copies(program)])

    def copies(self, program: Program) -> list[Copy]:
        """Those of a program."""
        if self.events is not None:
            return _copies_of(self.table, program)
        key = program.phase, program.stage, program.branch
        if key not in self._copies:
            self._copies[key] = _copies_of(self.table, program)
        return self._copies[key]

    def run(self, program: Program, start: Any) -> Any:
        """The end of a program with what it waits for on its own IPU."""
        if self.events is not None:
            return self._run(program, start)
        key = program.phase, program.stage, program.branch, self.plan.sends(program)
        if key not in self._lengths:
            self._lengths[key] = self._run(program, 0.0)
        return start + self._lengths[key]

    def _run(self, program: Program, start: Any) -> Any:
        streams = not self.plan.io_tiles and program.phase is Phase.FORWARD
        moves = transfers_of(self.plan, program, self.table[program.stage, program.branch][1])
        if streams:
            start = self.fed(program, start, "infeed")
        start = self.moved(start, moves, "in")
        start = self.put(start, self.cycles_of(program), program, "compute", program.phase.value)
        start = self.moved(start, moves, "out")
        return self.fed(program, start, "outfeed") if streams else start

    def exchange(self, rows: Sequence[Copy]) -> None:
        """Copies of a slot: an IPU's own ones, as sender or as receiver, follow each other."""
        ends: dict[int, Any] = {}
        for row in rows:
            start = _latest(ends.get(ipu, self.now) for ipu in (row.program.ipu, row.target))
            cycles = self.rates.cycles(row.bytes, "link")
            end = self.put(start, cycles, row.program, "exchange", Phase.COPY.value)
            ends[row.program.ipu] = ends[row.target] = end
        self.now = _latest([self.now, *ends.values()])

    def update(self) -> None:
        """Sum over the replicas, then state in, update, state out, on every IPU."""
        slot, replicas = self.plan.slots, self.plan.replicas
        sums: dict[int, Any] = dict.fromkeys(self.plan.ipus, 0.0)
        for entry, stage in self.table.values():
            # A ring sends 2(R-1)/R of the bytes over each link; with shards as much.
            sent = 2 * (replicas - 1) * stage.accumulator_bytes / replicas
            sums[entry.ipu] = sums[entry.ipu] + self.rates.cycles(sent, "link")
        for ipu, cycles in sums.items():
            program = Program(slot, ipu, Phase.REDUCE, -1, -1)
            self.put(self.now, cycles, program, "exchange", Phase.REDUCE.value)
        start = self.now + _latest(sums.values())
        ends = dict.fromkeys(self.plan.ipus, start)
        for entry, _ in self.table.values():
            ends[entry.ipu] = self.run(update_program(self.plan, entry), ends[entry.ipu])
        self.now = _latest(ends.values())


def timeline(
    plan: Plan, figures: Sequence[StageFigures], rates: Rates | None = None
) -> tuple[Event, ...]:
    """All events of one update of one replica.

    Without copies and transfers its end is `Plan.cycles` and the longest update.
    """
    events: list[Event] = []
    clock = _clock(plan, figures, rates, events)
    for _, work in groupby(plan.programs, key=lambda p: p.slot):
        clock.slot(tuple(work))
    if plan.training:
        clock.update()
    return tuple(events)


def update_time(plan: Plan, figures: Sequence[StageFigures], rates: Rates | None = None) -> Any:
    """Cycles of one update: the end of its `timeline`, to the last bits of binary64.

    figures    whose numbers may be arrays, of as many plans with the same programs; so is the time.
    """
    slots = slots_time(plan, figures, rates)
    if not plan.training:
        return slots
    clock = _clock(plan, figures, rates, None)
    clock.update()
    return slots + clock.now


def slots_time(plan: Plan, figures: Sequence[StageFigures], rates: Rates | None = None) -> Any:
    """Cycles of all slots of an update, as `update_time`; each kind of slot is computed once."""
    total: Any = 0.0
    clock = _clock(plan, figures, rates, None)
    for slot, count in _slot_kinds(
        plan.schedule, plan.places, plan.count, plan.recomputation, plan.training,
        plan.io_tiles > 0, plan.output_period,
    ):
        clock.now = 0.0
        clock.slot(slot)
        total = total + count * clock.now
    return total


@lru_cache(maxsize=256)
def _slot_kinds(
    schedule: Schedule | str, where: Places, count: int, mode: str | None, training: bool,
    io_overlap: bool, output_period: int,
) -> tuple[tuple[tuple[Program, ...], int], ...]:
    """A slot of each kind, the last one, and how many there are; plans of other offload share them.

    Slots of one kind have the same programs of other micro-batches, and send the same outputs.
    """
    work = programs(
        schedule, len(where), where, count, recompute=mode, training=training,
        io_overlap=io_overlap,
    )
    kinds: dict[tuple[Any, ...], tuple[tuple[Program, ...], int]] = {}
    for _, group in groupby(work, key=lambda p: p.slot):
        slot = tuple(group)
        kind = tuple(
            (p.ipu, p.phase, p.stage, p.branch, (p.micro_batch + 1) % output_period == 0)
            for p in slot
        )
        kinds[kind] = slot, kinds.get(kind, (slot, 0))[1] + 1
    return tuple(kinds.values())


def _clock(
    plan: Plan, figures: Sequence[StageFigures], rates: Rates | None, events: list[Event] | None
) -> _Clock:
    rates = rates or Rates()
    cycles_of = program_cycles(plan, figures, rates)
    return _Clock(plan, figures_of(plan, figures), cycles_of, rates, events)


def shares(events: Iterable[Event]) -> dict[int, Share]:
    """Cycles of every IPU by lane, of the time from the first event to the last."""
    rows = tuple(events)
    total = max((e.start + e.cycles for e in rows), default=0.0)
    by_ipu = {}
    for ipu in sorted({e.ipu for e in rows}):
        of_ipu = [e for e in rows if e.ipu == ipu]
        by_lane = {lane: sum(e.cycles for e in of_ipu if e.lane == lane) for lane in LANES}
        by_ipu[ipu] = Share(ipu, total, by_lane, total - _covered(of_ipu))
    return by_ipu


def _covered(events: Sequence[Event]) -> float:
    """Cycles in which at least one event runs."""
    covered = end = 0.0
    for event in sorted(events):
        stop = event.start + event.cycles
        covered += max(stop - max(event.start, end), 0)
        end = max(end, stop)
    return covered


def remote_share(events: Iterable[Event]) -> float:
    """Largest share of an IPU's cycles that goes into remote memory (StreamCopyMidRemoteBuffer).

    The guide's example is above 0.58: there, variables are better not offloaded.
    """
    return max((s.by_lane["remote"] / s.total for s in shares(events).values()), default=0.0)


def waits(produce: float, consume: float, depth: int, count: int) -> tuple[list[float], int]:
    """How long the device waits for each element of a feed, and the most elements that wait for it.

    produce, consume    cycles of the host and of the device for one element.
    depth               places of the buffer; the host waits when all are taken.

    >>> waits(1.0, 2.0, 3, 5)
    ([1.0, 0.0, 0.0, 0.0, 0.0], 3)
    """
    ready: list[float] = []
    taken: list[float] = []
    waited = []
    for n in range(count):
        room = taken[n - depth] if n >= depth else 0.0
        ready.append(max(ready[-1] if ready else 0.0, room) + produce)
        free = taken[-1] + consume if taken else 0.0
        taken.append(max(free, ready[-1]))
        waited.append(taken[-1] - free)
    most = max(
        (sum(ready[k] <= taken[n] for k in range(n, min(n + depth, count))) for n in range(count)),
        default=0,
    )
    return waited, most
