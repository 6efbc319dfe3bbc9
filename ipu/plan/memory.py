"""Memory of a plan: what lives where in which slot, what is in remote memory, what is transferred.

A declared account, never a promise: bytes of tensors in their own formats, without code, exchange
buffers and what a compiler adds. Weights, accumulators, the optimiser's state and the queues live
all the time, unless they are offloaded; activations beyond a queue's depth, the tape of a
recomputed stage, temporaries and elements of the feeds live while a program needs them.

Source    Graphcore's TensorFlow, config.py (tensors below 128 bytes), offloading_util.cc (shards);
          the maker's guide on I/O tiles, whose formula squares the size (`guide_io_tiles`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from fpsim.records.evidence import Evidence, Fact
from ipu.machine.memory import OutOfMemoryError, room_of
from ipu.machine.target import Target
from ipu.plan.plan import Entry, Plan
from ipu.plan.schedule import Phase, Program

__all__ = [
    "KINDS", "LIVES", "REMOTE_MINIMUM", "Live", "OutOfMemoryError", "Peak", "StageFigures",
    "Transfer", "always_live", "capacity", "figures_of", "guide_io_tiles", "io_tiles_for",
    "kept_bytes", "lives", "peaks", "remote_bytes", "state_bytes", "transfers", "update_program",
]

KINDS = (
    "weights", "accumulators", "state", "fifo", "activations", "tape", "work", "io",
)

#: How long tensors of each kind live.
LIVES = {
    "weights": "always", "accumulators": "always", "state": "always", "fifo": "always",
    "activations": "from forward to backward", "tape": "of recomputed stages, until backward",
    "work": "in a program", "io": "in a slot",
}

REMOTE_MINIMUM = Fact(128, Evidence.DOCUMENTED, "TensorFlow, config.py: minimum_remote_tensor_size")
#: Share of an I/O tile's memory that code and buffers take, in percent of the data.
IO_CODE = Fact(105, Evidence.DOCUMENTED, "the maker's guide: about 5 % for exchange code")
#: Even numbers of I/O tiles that PopTorch allows.
POPTORCH_IO_TILES = (32, 192)


@dataclass(frozen=True, kw_only=True)
class StageFigures:
    """What one callable of a plan needs, measured in a run or written by hand.

    Units     bytes of one replica and, of activations, of one micro-batch; cycles of one program.

    input_bytes, output_bytes    of the activations that enter and leave.
    saved_bytes                  what backward needs of forward, the inputs included.
    checkpoint_bytes             what a recomputed stage keeps beside its inputs: explicit
                                 checkpoints and dropout masks.
    work_bytes                   the largest temporary.
    state_tensors                bytes of each tensor of the state; empty: it is one tensor.
    state_itemsize               bytes of one element of the state.
    infeed_bytes, outfeed_bytes  from and to the host.
    largest                      names and bytes of its largest variables, with their accumulators
                                 and state.
    recompute_cycles             of forward, run again; None: those of forward.
    """

    parameter_bytes: int = 0
    state_bytes: int = 0
    accumulator_bytes: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    saved_bytes: int = 0
    checkpoint_bytes: int = 0
    work_bytes: int = 0
    infeed_bytes: int = 0
    outfeed_bytes: int = 0
    state_tensors: tuple[int, ...] = ()
    state_itemsize: int = 4
    forward_cycles: int = 0
    backward_cycles: int = 0
    update_cycles: int = 0
    recompute_cycles: int | None = None
    largest: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.state_tensors and sum(self.state_tensors) != self.state_bytes:
            raise ValueError(
                f"state_tensors add up to {sum(self.state_tensors)} bytes, but state_bytes="
                f"{self.state_bytes}; give the bytes of all tensors"
            )

    @property
    def tensors_of_state(self) -> tuple[int, ...]:
        """Bytes of each tensor of the state."""
        return self.state_tensors or ((self.state_bytes,) if self.state_bytes else ())


class Live(NamedTuple):
    """Bytes of one kind that an IPU holds in a slot; the slot behind the last is the update."""

    slot: int
    ipu: int
    kind: str
    bytes: int


class Transfer(NamedTuple):
    """Bytes between an IPU and remote memory, "in" to the IPU or "out", for that program."""

    program: Program
    kind: str
    direction: str
    bytes: int


class Peak(NamedTuple):
    """The slot in which an IPU holds most, the first of equals."""

    ipu: int
    slot: int
    bytes: int
    by_kind: dict[str, int]


def figures_of(
    plan: Plan, figures: Sequence[StageFigures]
) -> dict[tuple[int, int], tuple[Entry, StageFigures]]:
    """Figures by stage and branch.

    Raises    ValueError for another number of figures than the plan has entries.
    """
    entries = plan.entries
    if len(figures) != len(entries):
        raise ValueError(
            f"figures has {len(figures)} entries for {len(entries)} stages; give those of each"
        )
    rows = zip(entries, figures, strict=True)
    return {(entry.stage, entry.branch): (entry, stage) for entry, stage in rows}


def kept_bytes(plan: Plan, stage: int, figures: StageFigures) -> int:
    """Bytes that one micro-batch leaves for the backward pass of a stage."""
    if not plan.training:
        return 0
    if plan.recomputation and stage < plan.n_stages - 1:
        return figures.input_bytes + figures.checkpoint_bytes
    return figures.saved_bytes


def state_bytes(plan: Plan, figures: StageFigures) -> tuple[int, int]:
    """Bytes of a stage's state on the chip and in remote memory, of one replica.

    A sharded tensor counts ceil(elements/R) elements; one below 128 bytes stays on the chip.
    """
    chip = remote = 0
    for size in figures.tensors_of_state:
        elements = -(-size // figures.state_itemsize)
        mine = size
        if plan.is_sharded(elements):
            mine = -(-elements // plan.replicas) * figures.state_itemsize
        if "state" in plan.offloaded and size >= REMOTE_MINIMUM.value:
            remote += mine
        else:
            chip += mine
    return chip, remote


class _Tally:
    """What one callable holds, walked through the programs of a slot."""

    def __init__(self, plan: Plan, entry: Entry, figures: StageFigures) -> None:
        self.figures, self.ipu, self.stage = figures, entry.ipu, entry.stage
        self.activations = kept_bytes(plan, entry.stage, figures)
        self.remote = plan.offloaded
        self.recomputed = bool(plan.recomputation) and entry.stage < plan.n_stages - 1
        self.training = plan.training
        self.depth = plan.stash.fifo[entry.stage] if "activations" not in plan.offloaded else 0
        self.state, self.remote_state = state_bytes(plan, figures) if plan.training else (0, 0)
        self.held = self.tapes = 0

    def slot(self, work: Sequence[Program], update: bool, fed: int) -> dict[str, int]:
        """Bytes by kind in a slot in which these programs of the callable run."""
        held, tapes = self.held, self.tapes
        for program in work:
            if program.phase is Phase.FORWARD:
                self.held += 1
            elif program.phase is Phase.RECOMPUTE:
                self.tapes += 1
            held, tapes = max(held, self.held), max(tapes, self.tapes)
            if program.phase is Phase.BACKWARD:
                self.held -= 1
                self.tapes -= self.recomputed
        phases = [p.phase for p in work]
        if "activations" in self.remote:
            held = min(held, len(work))
        uses = bool(phases) or update
        adds = Phase.BACKWARD in phases or update
        figures = self.figures
        return {
            "weights": figures.parameter_bytes * (uses or "weights" not in self.remote),
            "accumulators": figures.accumulator_bytes
            * (self.training and (adds or "accumulators" not in self.remote)),
            "state": self.state + self.remote_state * update,
            "fifo": self.depth * self.activations,
            "activations": max(held - self.depth, 0) * self.activations,
            "tape": tapes * figures.saved_bytes,
            "work": figures.work_bytes * bool(phases),
            "io": fed,
        }


def _fed(plan: Plan, slot: Sequence[Program], stage: int, figures: StageFigures) -> int:
    """Bytes of the feeds in a slot: of its programs, and of transfers on I/O tiles beside them."""
    last = stage == plan.n_stages - 1
    forwards = sum(p.phase is Phase.FORWARD and p.stage == stage and not p.branch for p in slot)
    incoming = sum(p.phase is Phase.INFEED and p.stage == stage and not p.branch for p in slot)
    outgoing = sum(
        p.phase in (Phase.OUTFEED, Phase.FORWARD) and p.stage == stage and not p.branch
        and plan.sends(p) for p in slot
    )
    return figures.infeed_bytes * (forwards + incoming) + figures.outfeed_bytes * last * outgoing


def lives(plan: Plan, figures: Sequence[StageFigures]) -> tuple[Live, ...]:
    """Bytes by slot, IPU and kind; slot `plan.slots` is the update."""
    table = figures_of(plan, figures)
    tallies = {key: _Tally(plan, entry, of_stage) for key, (entry, of_stage) in table.items()}
    slots = {slot: tuple(work) for slot, work in groupby(plan.programs, key=lambda p: p.slot)}
    io = (Phase.INFEED, Phase.OUTFEED)
    rows = []
    for slot in range(plan.slots + plan.training):
        work = slots.get(slot, ())
        sums: dict[tuple[int, str], int] = {}
        temporary: dict[int, int] = {}
        for key, tally in tallies.items():
            mine = [p for p in work if (p.stage, p.branch) == key and p.phase not in io]
            fed = _fed(plan, work, tally.stage, tally.figures)
            for kind, size in tally.slot(mine, slot == plan.slots, fed).items():
                place = (tally.ipu, kind)
                if kind == "work":
                    temporary[tally.ipu] = max(temporary.get(tally.ipu, 0), size)
                    size = temporary[tally.ipu] - sums.get(place, 0)
                sums[place] = sums.get(place, 0) + size
        rows += [Live(slot, ipu, kind, size) for (ipu, kind), size in sums.items() if size]
    return tuple(rows)


def peaks(rows: Iterable[Live]) -> dict[int, Peak]:
    """The peak of each IPU."""
    sums: dict[int, dict[int, dict[str, int]]] = {}
    for row in rows:
        kinds = sums.setdefault(row.ipu, {}).setdefault(row.slot, {})
        kinds[row.kind] = kinds.get(row.kind, 0) + row.bytes
    by_ipu = {}
    for ipu, slots in sorted(sums.items()):
        slot = max(sorted(slots), key=lambda s: sum(slots[s].values()))
        by_ipu[ipu] = Peak(ipu, slot, sum(slots[slot].values()), slots[slot])
    return by_ipu


def always_live(rows: Iterable[Live]) -> dict[int, int]:
    """Bytes of each IPU that no slot is without."""
    rows = tuple(rows)
    slots = {row.slot for row in rows}
    sizes: dict[tuple[int, str], list[int]] = {}
    for row in rows:
        sizes.setdefault((row.ipu, row.kind), []).append(row.bytes)
    result: dict[int, int] = {row.ipu: 0 for row in rows}
    for (ipu, _), totals in sizes.items():
        result[ipu] += min(totals) if len(totals) == len(slots) else 0
    return result


def remote_bytes(plan: Plan, figures: Sequence[StageFigures]) -> dict[str, int]:
    """Bytes of one replica in remote memory, by kind."""
    sums = dict.fromkeys(sorted(plan.offloaded), 0)
    for entry, stage in figures_of(plan, figures).values():
        sizes = {
            "state": state_bytes(plan, stage)[1],
            "weights": stage.parameter_bytes,
            "accumulators": stage.accumulator_bytes,
            "activations": plan.stash.fifo[entry.stage] * kept_bytes(plan, entry.stage, stage),
        }
        for kind in sums:
            sums[kind] += sizes[kind]
    return sums


#: Programs before or behind which an offloaded kind moves.
_READS = {
    "weights": (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD),
    "accumulators": (Phase.BACKWARD,),
    "activations": (Phase.BACKWARD,),
}
_WRITES = {"accumulators": (Phase.BACKWARD,), "activations": (Phase.FORWARD,)}


def transfers(plan: Plan, figures: Sequence[StageFigures]) -> tuple[Transfer, ...]:
    """Copies between IPUs and remote memory of one update, in order.

    The state comes in and goes out once, at the update, and weights leave there. Weights come in
    for every program that uses them, accumulators come and go with every backward stage and come
    for the update. Activations go out behind F and come in before B, or before the recomputation;
    a stage without a queue keeps them.
    """
    table = figures_of(plan, figures)
    rows = []
    for program in plan.programs:
        if program.phase in (Phase.INFEED, Phase.OUTFEED):
            continue
        entry, stage = table[program.stage, program.branch]
        queued = plan.stash.fifo[entry.stage] > 0
        sizes = {
            "weights": stage.parameter_bytes,
            "accumulators": stage.accumulator_bytes,
            "activations": kept_bytes(plan, entry.stage, stage) * queued,
        }
        for kind, size in sizes.items():
            if kind not in plan.offloaded or not size:
                continue
            reads = _READS[kind]
            if kind == "activations" and plan.recomputation and entry.stage < plan.n_stages - 1:
                reads = (Phase.RECOMPUTE,)
            for phases, way in ((reads, "in"), (_WRITES.get(kind, ()), "out")):
                if program.phase in phases:
                    rows.append(Transfer(program, kind, way, size))
    return (*rows, *_update_transfers(plan, table.values()))


def update_program(plan: Plan, entry: Entry) -> Program:
    """The update of a stage's variables, behind the last slot."""
    return Program(plan.slots, entry.ipu, Phase.UPDATE, entry.stage, -1, entry.branch)


def _update_transfers(
    plan: Plan, table: Iterable[tuple[Entry, StageFigures]]
) -> tuple[Transfer, ...]:
    rows = []
    for entry, stage in table if plan.training else ():
        sizes = {
            "state": (state_bytes(plan, stage)[1], ("in", "out")),
            "weights": (stage.parameter_bytes, ("in", "out")),
            "accumulators": (stage.accumulator_bytes, ("in",)),
        }
        program = update_program(plan, entry)
        for kind, (size, ways) in sizes.items():
            if kind in plan.offloaded and size:
                rows += [Transfer(program, kind, way, size) for way in ways]
    return tuple(rows)


def capacity(plan: Plan, target: Target) -> int:
    """Bytes of an IPU's tiles that compute."""
    return room_of(target, plan.io_tiles)


def io_tiles_for(n_bytes: int, target: Target, poptorch: bool = False) -> int:
    """I/O tiles for a micro-batch of that many bytes: 5 % more than its size, even.

    poptorch    within the 32 … 192 that PopTorch allows.

    >>> from ipu.machine.target import MK2
    >>> io_tiles_for(16 * 224 * 224 * 3 * 2, MK2)
    8
    """
    tiles = -(-IO_CODE.value * n_bytes // (100 * target.tile_memory.value))
    tiles += tiles % 2
    least, most = POPTORCH_IO_TILES
    return min(max(tiles, least), most) if poptorch else int(tiles)


def guide_io_tiles(size: float, target: Target) -> float:
    """The guide's formula as it is printed, which multiplies the size by itself.

    >>> from ipu.machine.target import MK2
    >>> round(guide_io_tiles(16 * 224 * 224 * 3 * 2, MK2))
    38127584
    """
    code: float = IO_CODE.value / 100
    tile: int = target.tile_memory.value
    return code * size * size / tile
