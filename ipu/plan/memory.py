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
from typing import NamedTuple

import numpy as np

from fpsim.records.evidence import Evidence, Fact
from ipu.machine.memory import OutOfMemoryError, room_of
from ipu.machine.target import Target
from ipu.plan.plan import Entry, Plan
from ipu.plan.schedule import Phase, Program

__all__ = [
    "EXCHANGE_CODE", "KINDS", "LIVES", "REMOTE_MINIMUM", "Holding", "Live", "Load",
    "OutOfMemoryError", "Peak", "StageFigures", "Transfer", "always_live", "capacity",
    "code_bytes", "figures_of", "guide_io_tiles", "io_tiles_for", "kept_bytes", "lives",
    "loaded_bytes", "loads", "peaks", "remote_bytes", "transfers", "transfers_of",
    "update_program",
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


#: Bytes of code of BERT-Large on 1 and on 4 replicas, of all tiles, and on how many IPUs of a
#: replica that may be: the guide does not say.
EXCHANGE_CODE = {
    "control code": (91_668_904, 117_063_756), "internal exchange": (108_270_156, 126_520_640),
    "host exchange": (66_044_276, 66_147_360), "global exchange": (1_035_988, 4_657_516),
}
_CODE_IPUS = (4, 1)


class Holding(NamedTuple):
    """Bytes that a variable holds: its values, its accumulator, each tensor of its state.

    itemsize    of an element of the state.
    """

    values: int
    accumulator: int = 0
    state: tuple[int, ...] = ()
    itemsize: int = 4
    name: str = ""

    @property
    def total(self) -> int:
        """Of all that belongs to the variable."""
        return self.values + self.accumulator + sum(self.state)


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
    variables                    of the stage: an update brings them on the chip one after the
                                 other. Empty: they are one variable.
    largest                      names and bytes of its largest variables, with their accumulators
                                 and state.
    recompute_cycles             of forward, run again; None: those of forward.
    forward_exchange, backward_exchange    cycles in which operands of products come from other
                                 tiles, if they lie there.
    forward_saving, backward_saving    cycles less if products split K over tiles.
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
    forward_exchange: int = 0
    backward_exchange: int = 0
    forward_saving: int = 0
    backward_saving: int = 0
    variables: tuple[Holding, ...] = ()
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

    def state_in(self, plan: Plan) -> tuple[int, int]:
        """Bytes of the state on the chip and in remote memory, of one replica.

        A sharded tensor counts ceil(elements/R) elements; one below 128 bytes stays on the chip.
        """
        return _state_in(plan, self.tensors_of_state, self.state_itemsize)

    def brought(self, plan: Plan) -> dict[str, int]:
        """Bytes by kind that come from remote memory at once, in the update.

        Variables are updated one after the other: those of the one that brings most.
        """
        variables = self.variables or (Holding(
            self.parameter_bytes, self.accumulator_bytes, self.tensors_of_state,
            self.state_itemsize,
        ),)
        return max((_brought(plan, v) for v in variables), key=lambda row: sum(row.values()))


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


def _brought(plan: Plan, variable: Holding) -> dict[str, int]:
    """Bytes of a variable that live in remote memory, by kind."""
    sizes = {
        "weights": variable.values, "accumulators": variable.accumulator,
        "state": _state_in(plan, variable.state, variable.itemsize)[1],
    }
    return {kind: size for kind, size in sizes.items() if kind in plan.offloaded}


def _state_in(plan: Plan, tensors: Iterable[int], itemsize: int) -> tuple[int, int]:
    chip = remote = 0
    for size in tensors:
        elements = -(-size // itemsize)
        mine = size
        if plan.is_sharded(elements):
            mine = -(-elements // plan.replicas) * itemsize
        if "state" in plan.offloaded and size >= REMOTE_MINIMUM.value:
            remote += mine
        else:
            chip += mine
    return chip, remote


class Load(NamedTuple):
    """What a slot asks of the memory of one callable's IPU.

    held, tapes    micro-batches whose activations, or tapes of a recomputation, are there at once.
    uses, adds     programs that use the weights, or add to the accumulators, run.
    updates        it is the slot of the update.
    comes, leaves  elements of the feeds.
    """

    held: int
    tapes: int
    uses: bool
    adds: bool
    updates: bool
    comes: int
    leaves: int


class _Tally:
    """The loads of one callable, walked through the slots."""

    def __init__(self, plan: Plan, entry: Entry) -> None:
        self._plan, self._stage, self._branch = plan, entry.stage, entry.branch
        self._recomputed = bool(plan.recomputation) and entry.stage < plan.n_stages - 1
        self._held = self._tapes = 0

    def slot(self, work: Sequence[Program], updates: bool) -> Load:
        """The load of a slot with these programs of the stage, of all its branches."""
        comes, leaves = _fed(self._plan, work, self._stage)
        mine = [p for p in work if p.branch == self._branch and p.phase not in _IO]
        held, tapes = self._held, self._tapes
        for program in mine:
            if program.phase is Phase.FORWARD:
                self._held += 1
            elif program.phase is Phase.RECOMPUTE:
                self._tapes += 1
            held, tapes = max(held, self._held), max(tapes, self._tapes)
            if program.phase is Phase.BACKWARD:
                self._held -= 1
                self._tapes -= self._recomputed
        if "activations" in self._plan.offloaded:
            held = min(held, len(mine))
        adds = any(p.phase is Phase.BACKWARD for p in mine)
        return Load(held, tapes, bool(mine), adds, updates, comes, leaves)


_IO = (Phase.INFEED, Phase.OUTFEED)


def _fed(plan: Plan, slot: Sequence[Program], stage: int) -> tuple[int, int]:
    """Elements of the feeds in a slot: of a stage's programs, and of transfers on I/O tiles."""
    mine = [p for p in slot if not p.branch]
    comes = sum(p.phase in (Phase.FORWARD, Phase.INFEED) for p in mine)
    leaves = sum(p.phase in (Phase.OUTFEED, Phase.FORWARD) and plan.sends(p) for p in mine)
    return comes, leaves * (stage == plan.n_stages - 1)


def loads(plan: Plan) -> tuple[dict[tuple[int, int], Load], ...]:
    """The loads of every stage and branch, slot by slot; the last is the update's, in training."""
    work: dict[tuple[int, int], list[Program]] = {}
    for program in plan.programs:
        work.setdefault((program.slot, program.stage), []).append(program)
    tallies = {(entry.stage, entry.branch): _Tally(plan, entry) for entry in plan.entries}
    return tuple(
        {
            key: tally.slot(work.get((slot, key[0]), ()), slot == plan.slots)
            for key, tally in tallies.items()
        }
        for slot in range(plan.slots + plan.training)
    )


def loaded_bytes(plan: Plan, stage: int, figures: StageFigures, load: Load) -> dict[str, int]:
    """Bytes by kind that a stage holds under a load.

    What is offloaded comes for the programs that use it, and variable by variable in the update.
    """
    training, remote = plan.training, plan.offloaded
    waiting = kept_bytes(plan, stage, figures)
    depth = plan.stash.fifo[stage] if "activations" not in remote else 0
    state = figures.state_in(plan)[0] if training else 0
    brought = figures.brought(plan) if load.updates else {}
    stays = {
        "weights": load.uses or "weights" not in remote,
        "accumulators": training and (load.adds or "accumulators" not in remote),
    }
    return {
        "weights": figures.parameter_bytes if stays["weights"] else brought.get("weights", 0),
        "accumulators": figures.accumulator_bytes if stays["accumulators"]
        else brought.get("accumulators", 0),
        "state": state + brought.get("state", 0),
        "fifo": depth * waiting,
        "activations": max(load.held - depth, 0) * waiting,
        "tape": load.tapes * figures.saved_bytes,
        "work": figures.work_bytes * load.uses,
        "io": figures.infeed_bytes * load.comes + figures.outfeed_bytes * load.leaves,
    }


def lives(plan: Plan, figures: Sequence[StageFigures]) -> tuple[Live, ...]:
    """Bytes by slot, IPU and kind; slot `plan.slots` is the update."""
    table = figures_of(plan, figures)
    sizes: dict[tuple[tuple[int, int], Load], dict[str, int]] = {}
    rows = []
    for slot, of_slot in enumerate(loads(plan)):
        sums: dict[tuple[int, str], int] = {}
        for key, load in of_slot.items():
            entry, stage = table[key]
            if (key, load) not in sizes:
                sizes[key, load] = loaded_bytes(plan, entry.stage, stage, load)
            for kind, size in sizes[key, load].items():
                place = entry.ipu, kind
                before = sums.get(place, 0)
                # Temporaries of stages on one IPU share their room.
                sums[place] = max(before, size) if kind == "work" else before + size
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
            "state": stage.state_in(plan)[1],
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
    updates = [update_program(plan, entry) for entry, _ in table.values() if plan.training]
    rows: list[Transfer] = []
    for program in (*plan.programs, *updates):
        rows += transfers_of(plan, program, table[program.stage, program.branch][1])
    return tuple(rows)


def transfers_of(plan: Plan, program: Program, figures: StageFigures) -> list[Transfer]:
    """Those of one program, of a stage with these figures."""
    if program.phase in _IO:
        return []
    if program.phase is Phase.UPDATE:
        moves = {
            "state": (figures.state_in(plan)[1], ("in", "out")),
            "weights": (figures.parameter_bytes, ("in", "out")),
            "accumulators": (figures.accumulator_bytes, ("in",)),
        }
    else:
        recomputed = plan.recomputation and program.stage < plan.n_stages - 1
        is_queued = plan.stash.fifo[program.stage] > 0
        sizes = {
            "weights": figures.parameter_bytes,
            "accumulators": figures.accumulator_bytes,
            "activations": kept_bytes(plan, program.stage, figures) * is_queued,
        }
        reads = _READS | ({"activations": (Phase.RECOMPUTE,)} if recomputed else {})
        moves = {
            kind: (size, tuple(
                way for way, phases in (("in", reads[kind]), ("out", _WRITES.get(kind, ())))
                if program.phase in phases
            ))
            for kind, size in sizes.items()
        }
    return [
        Transfer(program, kind, way, size)
        for kind, (size, ways) in moves.items() if kind in plan.offloaded and np.any(size)
        for way in ways
    ]


def update_program(plan: Plan, entry: Entry) -> Program:
    """The update of a stage's variables, behind the last slot."""
    return Program(plan.slots, entry.ipu, Phase.UPDATE, entry.stage, -1, entry.branch)


def capacity(plan: Plan, target: Target) -> int:
    """Bytes of an IPU's tiles that compute."""
    return room_of(target, plan.io_tiles)


def code_bytes(plan: Plan) -> tuple[int, int]:
    """Least and most bytes of code on an IPU, of which no peak has any.

    What BERT-Large has, whose code is the only one that is published: on four IPUs, or on one.

    Source    Graphcore's guide on memory and performance (DOCUMENTED); that other programs have as
              much is ASSUMED.

    >>> code_bytes(Plan([abs]))
    (66754831, 267019324)
    """
    column = 0 if plan.replicas == 1 else 1
    total = sum(row[column] for row in EXCHANGE_CODE.values())
    few, many = (total // ipus for ipus in _CODE_IPUS)
    return few, many


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
