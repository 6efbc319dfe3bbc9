"""Schedules: which stage of which micro-batch runs in which slot, on which IPU. No arithmetic.

A micro-batch m visits a list of columns: the forward stages F_0 … F_(N-1), then the backward stages
B_(N-1) … B_0 (training). A schedule is a row of offsets: the block of C columns repeats, and the
micro-batches of one block enter it at the offsets. GROUPED enters at every column, INTERLEAVED at
the rotations of the IPU list in which no IPU meets itself, SEQUENTIAL at column 0 only. POPART is
PopART's: F_(N-1) and B_(N-1) are one column, and a micro-batch enters in every slot.

Source    Graphcore's TensorFlow, pipeline_visitor.cc and pipeline_visitor_utils.h (offsets, blocks,
          recomputation, I/O overlap), pipeline_fifo_inserter.cc (depths); PopART, pipeline.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from fpsim.records.by_name import EnumByName

__all__ = [
    "Phase", "Places", "Program", "Schedule", "check", "fifo_depths", "n_slots", "places",
    "programs", "ramp_share", "recompute_mode", "required_multiple", "smallest_count",
]

#: IPUs of each stage position; a position with several entries holds concurrent stages.
Places = tuple[tuple[int, ...], ...]


class Phase(Enum):
    """What a program does. Infeeds and outfeeds run on I/O tiles, beside the others."""

    INFEED = "infeed"
    OUTFEED = "outfeed"
    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"
    COPY = "copy"
    REDUCE = "reduce"
    UPDATE = "update"


class Program(NamedTuple):
    """One piece of work of one IPU.

    branch    index of a concurrent stage in its position.
    """

    slot: int
    ipu: int
    phase: Phase
    stage: int
    micro_batch: int
    branch: int = 0


class Schedule(EnumByName):
    """How micro-batches follow each other through the stages.

    >>> Schedule.parse("Grouped")
    <Schedule.GROUPED: 'grouped'>
    """

    GROUPED = "grouped"
    INTERLEAVED = "interleaved"
    SEQUENTIAL = "sequential"
    POPART = "popart"

    @classmethod
    def _refusal(cls, value: object) -> str:
        names = ", ".join(member.value for member in cls)
        return f"schedule={value!r} is not a schedule; use one of {names}"


def places(mapping: Sequence[int | Sequence[int]]) -> Places:
    """IPUs of each position, as tuples.

    >>> places([0, [1, 2], 2])
    ((0,), (1, 2), (2,))
    """
    return tuple((p,) if isinstance(p, int) else tuple(p) for p in mapping)


def _columns(schedule: Schedule, n_stages: int, training: bool) -> int:
    if not training:
        return n_stages
    return 2 * n_stages - (schedule is Schedule.POPART)


def _offsets(schedule: Schedule, where: Places, training: bool) -> tuple[int, ...]:
    """Columns at which micro-batches of a block enter it."""
    columns = _columns(schedule, len(where), training)
    if schedule in (Schedule.GROUPED, Schedule.POPART):
        return tuple(range(columns))
    if schedule is Schedule.SEQUENTIAL:
        return (0,)
    visited = [set(p) for p in (*where, *(reversed(where) if training else ()))]
    taken: list[int] = []
    for offset in range(columns):
        apart = [(offset - other) % columns for other in taken]
        if all(not visited[c] & visited[c - d] for d in apart for c in range(columns)):
            taken.append(offset)
    return tuple(taken)


def _start(schedule: Schedule, where: Places, training: bool) -> Callable[[int], int]:
    """The slot in which micro-batch m enters the pipeline."""
    offsets = _offsets(schedule, where, training)
    columns = _columns(schedule, len(where), training)
    return lambda m: m // len(offsets) * columns + offsets[m % len(offsets)]


def required_multiple(
    schedule: Schedule | str,
    n_stages: int,
    mapping: Sequence[int | Sequence[int]] | None = None,
    *,
    training: bool = True,
    io_overlap: bool = False,
) -> int:
    """What the number of micro-batches must be a multiple of.

    One stage is no pipeline: any number fits it. With I/O overlap, and in POPART, a number has only
    a lower bound (`smallest_count`).

    >>> [required_multiple(s, 4) for s in ("grouped", "interleaved", "sequential", "popart")]
    [8, 4, 1, 1]
    """
    schedule = Schedule.parse(schedule)
    if n_stages == 1 or io_overlap or schedule is Schedule.POPART:
        return 1
    where = places(range(n_stages) if mapping is None else mapping)
    return len(_offsets(schedule, where, training))


def smallest_count(
    schedule: Schedule | str,
    n_stages: int,
    mapping: Sequence[int | Sequence[int]] | None = None,
    *,
    training: bool = True,
    io_overlap: bool = False,
) -> int:
    """The smallest number of micro-batches that fills the pipeline once.

    >>> smallest_count("popart", 4), smallest_count("grouped", 4, io_overlap=True)
    (7, 10)
    """
    schedule = Schedule.parse(schedule)
    columns = _columns(schedule, n_stages, training)
    if io_overlap:
        return columns + 2
    if schedule is Schedule.POPART:
        return columns
    return required_multiple(schedule, n_stages, mapping, training=training)


def recompute_mode(schedule: Schedule | str, recompute: str | bool | None) -> str | None:
    """The mode of recomputation: None, "then" or "interleaved"; True asks for the schedule's own.

    >>> recompute_mode("grouped", True), recompute_mode("sequential", True)
    ('then', 'interleaved')
    """
    schedule = Schedule.parse(schedule)
    if recompute is None or recompute is False:
        return None
    if recompute is True:
        by_slot = (Schedule.GROUPED, Schedule.INTERLEAVED)
        return "then" if schedule in by_slot else "interleaved"
    if recompute not in ("then", "interleaved"):
        raise ValueError(
            f"recompute={recompute!r} is not a mode; use None, True, 'then' or 'interleaved'"
        )
    other = {
        (Schedule.SEQUENTIAL, "then"): "interleaved",
        (Schedule.INTERLEAVED, "interleaved"): "then",
    }
    if instead := other.get((schedule, recompute)):
        raise ValueError(
            f"recompute={recompute!r} does not go with schedule={schedule.value!r}; use {instead!r}"
        )
    return recompute


def check(
    schedule: Schedule | str,
    n_stages: int,
    mapping: Sequence[int | Sequence[int]],
    count: int,
    *,
    training: bool = True,
    io_overlap: bool = False,
) -> Places:
    """The IPUs of each position, when the schedule can run that number of micro-batches.

    Raises    ValueError for a mapping of other length, for concurrent stages on one IPU, for
              INTERLEAVED training with two stages on one IPU or with I/O overlap, and for a number
              of micro-batches that leaves the schedule's blocks unfilled.
    """
    schedule = Schedule.parse(schedule)
    where = places(mapping)
    if n_stages < 1:
        raise ValueError(f"n_stages={n_stages}: use 1 or more")
    shown = [p[0] if len(p) == 1 else list(p) for p in where]
    if len(where) != n_stages:
        raise ValueError(
            f"mapping={shown} has {len(where)} entries for {n_stages} stages; "
            "give every stage its IPU"
        )
    for p in where:
        if not p or len(set(p)) < len(p):
            raise ValueError(f"mapping has the entry {list(p)}; concurrent stages need an IPU each")
    ipus = [ipu for p in where for ipu in p]
    interleaved = schedule is Schedule.INTERLEAVED
    if interleaved and training and n_stages > 1 and len(set(ipus)) < len(ipus):
        raise ValueError(
            f"schedule='interleaved' cannot place two stages on one IPU, mapping={shown}; "
            "use schedule='grouped' or give every stage its own IPU"
        )
    if io_overlap and n_stages > 1 and schedule is not Schedule.GROUPED:
        raise ValueError(
            f"io_tiles overlap with schedule='grouped' only, not with {schedule.value!r}; "
            "use schedule='grouped' or io_tiles=0"
        )
    options = {"training": training, "io_overlap": io_overlap}
    multiple = required_multiple(schedule, n_stages, mapping, **options)
    least = smallest_count(schedule, n_stages, mapping, **options) if n_stages > 1 else 1
    if count % multiple or count < 1:
        below = max(count // multiple, 1) * multiple
        raise ValueError(
            f"count={count}: The number of iterations of the pipeline must be a multiple of "
            f"{multiple}, but it is {count}; use {below} or {below + multiple}"
        )
    if count < least:
        raise ValueError(
            f"count={count}: a {schedule.value} pipeline of {n_stages} stages"
            f"{' with I/O tiles' if io_overlap else ''} needs {least} micro-batches or more; "
            f"use count={least}"
        )
    return where


def programs(
    schedule: Schedule | str,
    n_stages: int,
    mapping: Sequence[int | Sequence[int]],
    count: int,
    *,
    recompute: str | bool | None = None,
    training: bool = True,
    io_overlap: bool = False,
) -> tuple[Program, ...]:
    """All programs in the order of their execution.

    By slot; in a slot first outfeeds and infeeds, then forward stages 0 … N-1, then backward stages
    N-1 … 0. Recomputation of (i, m), never of the last stage: "then" puts it behind the programs of
    the slot before B_i(m), "interleaved" directly before B_i(m). Concurrent stages run forward in
    their order and backward in reverse. With I/O overlap the infeed of m has a slot before F_0(m),
    the outfeed one after F_(N-1)(m).

    Raises    ValueError as `check` and `recompute_mode`.

    >>> for program in programs("popart", 2, [0, 1], 3)[:4]:
    ...     print(program.slot, program.ipu, program.phase.name, program.micro_batch)
    0 0 FORWARD 0
    1 0 FORWARD 1
    1 1 FORWARD 0
    1 1 BACKWARD 0
    """
    schedule = Schedule.parse(schedule)
    where = check(schedule, n_stages, mapping, count, training=training, io_overlap=io_overlap)
    mode = recompute_mode(schedule, recompute) if training else None
    return _programs(schedule, where, count, mode, training, io_overlap)


@lru_cache(maxsize=256)
def _programs(
    schedule: Schedule, where: Places, count: int, mode: str | None, training: bool,
    io_overlap: bool,
) -> tuple[Program, ...]:
    n_stages = len(where)
    start = _start(schedule, where, training)
    last = n_stages - 1
    turn = 2 * n_stages - 1 - (schedule is Schedule.POPART)
    rows: list[tuple[tuple[int, ...], Program]] = []

    def add(slot: int, phase: Phase, stage: int, m: int, *order: int) -> None:
        for branch, ipu in enumerate(where[stage]):
            program = Program(slot, ipu, phase, stage, m, branch)
            forward = phase not in (Phase.BACKWARD, Phase.RECOMPUTE)
            rank = (order[0], stage, branch) if forward else (order[0], last - stage, -branch)
            rows.append(((slot, *rank, *order[1:]), program))

    for m in range(count):
        first = start(m) + io_overlap
        if io_overlap:
            add(first - 1, Phase.INFEED, 0, m, 0)
            add(first + n_stages, Phase.OUTFEED, last, m, -1)
        for stage in range(n_stages):
            add(first + stage, Phase.FORWARD, stage, m, 1)
            if not training:
                continue
            slot = first + turn - stage
            add(slot, Phase.BACKWARD, stage, m, 2, 1)
            if mode == "interleaved" and stage < last:
                add(slot, Phase.RECOMPUTE, stage, m, 2, 0)
            elif mode == "then" and stage < last:
                add(slot - 1, Phase.RECOMPUTE, stage, m, 3)
    return tuple(program for _, program in sorted(rows, key=lambda row: row[0]))


def n_slots(
    schedule: Schedule | str,
    n_stages: int,
    mapping: Sequence[int | Sequence[int]],
    count: int,
    *,
    training: bool = True,
    io_overlap: bool = False,
) -> int:
    """Slots of one update. With I/O overlap the last one is there for what B_0 may send out.

    >>> [n_slots(s, 4, range(4), 8) for s in ("grouped", "popart", "interleaved", "sequential")]
    [15, 14, 22, 64]
    """
    schedule = Schedule.parse(schedule)
    where = check(schedule, n_stages, mapping, count, training=training, io_overlap=io_overlap)
    columns = _columns(schedule, n_stages, training)
    return _start(schedule, where, training)(count - 1) + columns + 2 * io_overlap


def fifo_depths(schedule: Schedule | str, n_stages: int) -> tuple[int, ...]:
    """Depth of the queue from F_i to B_i, for each stage.

    >>> fifo_depths("grouped", 4), fifo_depths("interleaved", 4)
    ((6, 4, 2, 0), (3, 2, 1, 0))
    """
    factor = {Schedule.INTERLEAVED: 1, Schedule.SEQUENTIAL: 0}.get(Schedule.parse(schedule), 2)
    return tuple(factor * (n_stages - 1 - stage) for stage in range(n_stages))


def ramp_share(count: int, stages: int) -> float:
    """Share of a pipeline's slots in which it fills or drains, with G = count mini-batches.

    A grouped schedule of N stages takes G + 2N - 1 slots, 2N - 1 more than there are mini-batches.

    >>> [round(ramp_share(count, 4), 2) for count in (8, 64, 512)]
    [0.47, 0.1, 0.01]
    """
    if count < 1 or stages < 1:
        raise ValueError(f"count={count}, stages={stages}: use 1 or more of each")
    ramps = 2 * stages - 1
    return ramps / (count + ramps)
