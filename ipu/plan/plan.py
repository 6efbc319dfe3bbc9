"""Plans: how a model runs on several IPUs. A plan moves work in place and time, and changes no bit.

What does reach the bits of a training are the number of micro-batches, the method and the format of
their accumulation, the number of replicas and the order of their sum. Where stages run, when, and
what is recomputed, offloaded or sharded does not.

Source    Graphcore's TensorFlow, pipelining_ops.py, and PopART, pipeline.cc: what a pipeline
          refuses; sentences of theirs that users know are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import combinations, pairwise, product
from typing import NamedTuple

from ipu.learn.accumulate import Accumulation, Dtype, Reduction
from ipu.plan import measures
from ipu.plan import schedule as schedules
from ipu.plan.arguments import Stage, read_mapping, read_offload, read_stages
from ipu.plan.orders import Order, Ring, check_order, ring_of
from ipu.plan.schedule import Phase, Places, Program, Schedule, places

__all__ = ["Entry", "Plan", "Stash", "equal_stages", "replica_count"]

#: Addresses of random bits have room for so many.
_MOST_MICRO_BATCHES, _MOST_REPLICAS = 1 << 16, 1 << 10


class Entry(NamedTuple):
    """One callable of a plan and its place."""

    stage: int
    branch: int
    ipu: int
    run: Stage


class Stash(NamedTuple):
    """Micro-batches kept for the backward pass of each stage.

    fifo    depth of the queue from F_i to B_i.
    held    at the end of a slot; peak: at any moment.
    """

    fifo: tuple[int, ...]
    held: tuple[int, ...]
    peak: tuple[int, ...]


@lru_cache(maxsize=256)
def _stash(
    schedule: Schedule, where: Places, count: int, mode: str | None, io_overlap: bool
) -> Stash:
    """Of a training; plans that differ in other things have the same."""
    work = schedules.programs(
        schedule, len(where), where, count, recompute=mode, io_overlap=io_overlap
    )
    return Stash(
        schedules.fifo_depths(schedule, len(where)), measures.held_between_slots(work),
        measures.peak_inside_slot(work),
    )


def replica_count(n_ipus: int, ipus_of_stages: int) -> int:
    """Replicas on that many IPUs.

    >>> replica_count(8, 2)
    4
    """
    if n_ipus < 1 or n_ipus % ipus_of_stages:
        raise ValueError(
            f"n_ipus={n_ipus} is no multiple of the {ipus_of_stages} IPUs that the stages take; "
            f"use {max(n_ipus // ipus_of_stages, 1) * ipus_of_stages}"
        )
    return n_ipus // ipus_of_stages


def equal_stages(program: Program) -> int:
    """Cycles of a program where no figures are known: B takes twice as long as F."""
    return {Phase.FORWARD: 1, Phase.RECOMPUTE: 1, Phase.BACKWARD: 2}.get(program.phase, 0)


@dataclass(frozen=True)
class Plan:
    """Stages, their IPUs, their schedule, and everything else that moves work.

    stages      callables; the outputs of one are the inputs of the next. A list in the list holds
                concurrent stages: each takes the same arguments, their outputs are concatenated.
    mapping     IPU of each stage, nested as `stages`; without it neighbours are neighbours.
    schedule    "grouped", "interleaved", "sequential" or "popart".
    count       G, the micro-batches of one update; reduction, dtype: as in `Accumulation`.
    recompute   None, True (the schedule's own mode), "then" or "interleaved".
    replicas    R copies; order: of their sum ("auto" as poplibs chooses), ring: of the replicas.
    buffer_size          bytes of gradients that are summed as one tensor; 0: each by itself.
    shard_state          optimiser state in R parts; shard_minimum: not tensors below so many
                         elements (PopART: 8192).
    offload              what lives in remote memory, of "state", "activations", "accumulators",
                         "weights"; None: the state when gradients accumulate and there is any.
    remote_buffers       whether the machine has remote memory.
    io_tiles             tiles that only transfer; prefetch: elements that wait for the device.
    output_period        outputs of every so many-th micro-batch go to the host.
    shared_gradients     of a variable of several stages: summed for each "variable", or added stage
                         by stage, "stage", as TensorFlow does; that one depends on the schedule.
    sync                 IPUs wait for each other after a "slot" or after each "group" of phases.
    training             False: forward stages only.
    check_memory         refuse what does not fit a target (`ipu.plan.explain`).

    >>> plan = Plan([abs, abs, abs, abs], count=8)
    >>> plan.slots, plan.stash.held, round(plan.utilisation(), 3)
    (15, (7, 5, 3, 1), 0.727)
    """

    stages: Sequence[Stage | Sequence[Stage]]
    mapping: Sequence[int | Sequence[int]] | None = field(default=None, kw_only=True)
    schedule: Schedule | str = field(default=Schedule.GROUPED, kw_only=True)
    count: int = field(default=1, kw_only=True)
    reduction: Reduction | str = field(default=Reduction.SUM, kw_only=True)
    dtype: Dtype = field(default=None, kw_only=True)
    recompute: str | bool | None = field(default=None, kw_only=True)
    replicas: int = field(default=1, kw_only=True)
    order: Order | str = field(default=Order.AUTO, kw_only=True)
    ring: Ring | str = field(default=Ring.FLAT, kw_only=True)
    buffer_size: int = field(default=0, kw_only=True)
    shard_state: bool = field(default=False, kw_only=True)
    shard_minimum: int = field(default=0, kw_only=True)
    offload: Collection[str] | None = field(default=None, kw_only=True)
    remote_buffers: bool = field(default=True, kw_only=True)
    io_tiles: int = field(default=0, kw_only=True)
    prefetch: int = field(default=3, kw_only=True)
    output_period: int = field(default=1, kw_only=True)
    shared_gradients: str = field(default="variable", kw_only=True)
    sync: str = field(default="slot", kw_only=True)
    training: bool = field(default=True, kw_only=True)
    check_memory: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        def put(**values: object) -> None:
            for name, value in values.items():
                object.__setattr__(self, name, value)

        put(stages=read_stages(self.stages), schedule=Schedule.parse(self.schedule))
        if self.mapping is not None:
            put(mapping=read_mapping(self.mapping, self.positions))
        accumulation = Accumulation(self.count, self.reduction, self.dtype)
        put(reduction=accumulation.reduction)
        _check_numbers(self)
        schedules.check(
            self.schedule, self.n_stages, self.places, self.count,
            training=self.training, io_overlap=self.io_tiles > 0,
        )
        schedules.recompute_mode(self.schedule, self.recompute)
        put(order=check_order(self.order, self.replicas))
        ring_of(1, self.ring)
        put(ring=Ring(self.ring))
        if self.offload is not None:
            put(offload=read_offload(self.offload, self.remote_buffers))
        _check_shards(self)

    @cached_property
    def positions(self) -> tuple[tuple[Stage, ...], ...]:
        """The callables of each stage position."""
        return tuple(p if isinstance(p, tuple) else (p,) for p in self.stages)

    @property
    def n_stages(self) -> int:
        """Forward stages, concurrent ones counted once."""
        return len(self.stages)

    @cached_property
    def places(self) -> Places:
        """IPUs of each position: the mapping, or 0, 1, 2 … in the order of the stages.

        On a line of IPUs the latter makes every copy between neighbours as short as it can be.
        """
        if self.mapping is not None:
            return places(self.mapping)
        numbers = iter(range(sum(map(len, self.positions))))
        return tuple(tuple(next(numbers) for _ in position) for position in self.positions)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every callable with its place, forward order."""
        rows = zip(self.positions, self.places, strict=True)
        return tuple(
            Entry(stage, branch, ipu, run)
            for stage, (runs, ipus) in enumerate(rows)
            for branch, (run, ipu) in enumerate(zip(runs, ipus, strict=True))
        )

    @cached_property
    def runs(self) -> dict[tuple[int, int], Stage]:
        """The callable of each stage and branch."""
        return {(entry.stage, entry.branch): entry.run for entry in self.entries}

    def is_last(self, program: Program) -> bool:
        """Whether a program is of the last stage position."""
        return program.stage == self.n_stages - 1

    def sends(self, program: Program) -> bool:
        """Whether the outputs of a program's micro-batch go to the host.

        >>> plan = Plan([abs], count=4, output_period=4)
        >>> [plan.sends(program) for program in plan.programs if program.phase is Phase.FORWARD]
        [False, False, False, True]
        """
        return (program.micro_batch + 1) % self.output_period == 0

    def ends_position(self, program: Program) -> bool:
        """Whether a program is of the last of its concurrent stages."""
        return program.branch + 1 == len(self.places[program.stage])

    @cached_property
    def ipus(self) -> tuple[int, ...]:
        """IPUs of one replica."""
        return tuple(sorted({entry.ipu for entry in self.entries}))

    @property
    def n_ipus(self) -> int:
        """IPUs of all replicas."""
        return len(self.ipus) * self.replicas

    @property
    def distance(self) -> int:
        """Steps between the IPUs of neighbouring stages, on a line of IPUs, added up."""
        return sum(abs(a - b) for near, far in pairwise(self.places) for a, b in product(near, far))

    @property
    def accumulation(self) -> Accumulation:
        """The arithmetic of the micro-batches' gradients."""
        return Accumulation(self.count, self.reduction, self.dtype)

    @property
    def recomputation(self) -> str | None:
        """The mode of recomputation: None, "then" or "interleaved"."""
        mode = schedules.recompute_mode(self.schedule, self.recompute)
        return mode if self.training else None

    @property
    def offloaded(self) -> frozenset[str]:
        """What lives in remote memory."""
        if self.offload is not None:
            return frozenset(self.offload)
        accumulates = self.training and (self.n_stages > 1 or self.count > 1)
        return frozenset({"state"} if accumulates and self.remote_buffers else ())

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        """All programs of one update of one replica, in the order of their execution."""
        return schedules.programs(
            self.schedule, self.n_stages, self.places, self.count,
            recompute=self.recompute, training=self.training, io_overlap=self.io_tiles > 0,
        )

    @cached_property
    def slots(self) -> int:
        """Slots of one update."""
        return schedules.n_slots(
            self.schedule, self.n_stages, self.places, self.count,
            training=self.training, io_overlap=self.io_tiles > 0,
        )

    @cached_property
    def stash(self) -> Stash:
        """What is kept for the backward pass of each stage; nothing in inference."""
        if not self.training:
            return Stash(*((0,) * self.n_stages,) * 3)
        assert isinstance(self.schedule, Schedule)
        return _stash(
            self.schedule, self.places, self.count, self.recomputation, self.io_tiles > 0
        )

    @property
    def latency(self) -> int:
        """Slots from the first program of a micro-batch to its last."""
        return measures.latency(self.programs)

    def utilisation(self, cycles_of: Callable[[Program], float] = equal_stages) -> float:
        """Share of the IPUs' cycles that compute; F = 1 and B = 2 cycles where nothing is known."""
        return measures.utilisation(self.programs, cycles_of, self.sync)

    def cycles(self, cycles_of: Callable[[Program], float] = equal_stages) -> float:
        """Cycles of the slots of one update."""
        return measures.cycles(self.programs, cycles_of, self.sync)

    def samples(self, batch: int) -> int:
        """Samples of one update, with micro-batches of that size.

        >>> Plan([abs], count=4, replicas=2).samples(16)
        128
        """
        return batch * self.count * self.replicas

    def micro_batch(self, batch: int, replicas: int | None = None) -> int:
        """Samples of one micro-batch of one replica, of the batch of one update.

        replicas    that share the batch; None: all.

        Raises    ValueError for a batch that G · R does not divide.
        """
        replicas = self.replicas if replicas is None else replicas
        share = self.count * replicas
        if batch < 1 or batch % share:
            raise ValueError(
                f"batch={batch} is no multiple of {share}, which is count={self.count} times "
                f"replicas={replicas}; use {max(batch // share, 1) * share}"
            )
        return batch // share

    def on_ipus(self, n_ipus: int) -> Plan:
        """This plan with as many replicas as take that many IPUs.

        >>> Plan([abs, abs], count=4).on_ipus(8).replicas
        4
        """
        return replace(self, replicas=replica_count(n_ipus, len(self.ipus)))

    def is_sharded(self, elements: int) -> bool:
        """Whether the state of a variable of that many elements lies in R parts."""
        return self.shard_state and elements >= self.shard_minimum

    def check_variables(self, names: Sequence[Iterable[Hashable]]) -> None:
        """Refuses variables that two stages cannot share.

        names    of the variables of each entry, in the order of `entries`.

        Raises   ValueError for a variable on two IPUs, or of two concurrent stages.
        """
        used = list(zip(self.entries, map(set, names), strict=True))
        for (one, mine), (other, theirs) in combinations(used, 2):
            for name in sorted(map(str, mine & theirs)):
                if one.stage == other.stage:
                    raise ValueError(
                        f"concurrent stages {one.branch} and {other.branch} of position "
                        f"{one.stage} share the variable {name}; give each its own"
                    )
                if one.ipu != other.ipu:
                    raise ValueError(
                        f"stages {one.stage} and {other.stage} share the variable {name}, but run "
                        f"on IPUs {one.ipu} and {other.ipu}; map both to one IPU"
                    )

    def check_checkpoints(self) -> None:
        """Refuses explicit recomputation checkpoints that the schedule cannot use.

        Raises   ValueError unless GROUPED on several IPUs, or SEQUENTIAL on one.
        """
        several = len(self.ipus) > 1
        wanted = Schedule.GROUPED if several else Schedule.SEQUENTIAL
        if self.schedule is not wanted:
            raise ValueError(
                f"explicit recomputation checkpoints on {'several IPUs' if several else 'one IPU'} "
                f"need schedule={wanted.value!r}, not {Schedule.parse(self.schedule).value!r}"
            )

    def check_accumulation(self, accumulation: Accumulation | None) -> None:
        """Refuses a second accumulation beside the plan's own."""
        if accumulation is not None:
            raise ValueError(
                f"accumulation={accumulation} beside a plan: a plan accumulates by itself; "
                f"use Plan(count={accumulation.count}) and an optimiser without accumulation"
            )

    def __str__(self) -> str:
        where = " ".join("+".join(map(str, p)) for p in self.places)
        assert isinstance(self.schedule, Schedule)
        assert isinstance(self.order, Order)
        lines = [
            f"{self.n_stages} stage{'s' * (self.n_stages > 1)} on IPU {where}, "
            f"{self.schedule.value}, {self.slots} slots",
            f"{self.accumulation}, {self.replicas} replica{'s' * (self.replicas > 1)}"
            + f" summed in order {self.order.value}" * (self.replicas > 1),
        ]
        if self.recomputation:
            lines.append(f"recomputation: {self.recomputation}")
        if self.offloaded:
            lines.append(f"in remote memory: {', '.join(sorted(self.offloaded))}")
        if self.shard_state:
            lines.append(f"optimiser state in {self.replicas} parts")
        if self.io_tiles:
            lines.append(f"{self.io_tiles} I/O tiles")
        return "\n".join(lines)


def _check_numbers(plan: Plan) -> None:
    """Numbers and words of a plan that no other part reads."""
    for name, least, most in (
        ("count", 1, _MOST_MICRO_BATCHES), ("replicas", 1, _MOST_REPLICAS),
        ("buffer_size", 0, None), ("shard_minimum", 0, None), ("io_tiles", 0, None),
        ("prefetch", 1, 255), ("output_period", 1, None),
    ):
        value = getattr(plan, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name}={value!r} is not a number; use an integer")
        if value < least or (most is not None and value > most):
            allowed = f"{least} … {most}" if most else f"{least} or more"
            raise ValueError(f"{name}={value}: use {allowed}")
    if plan.io_tiles % 2:
        raise ValueError(f"io_tiles={plan.io_tiles} is odd; use {plan.io_tiles + 1}")
    for name, words in (("shared_gradients", ("variable", "stage")), ("sync", ("slot", "group"))):
        if getattr(plan, name) not in words:
            raise ValueError(f"{name}={getattr(plan, name)!r}: use {' or '.join(map(repr, words))}")


def _check_shards(plan: Plan) -> None:
    """Sharded state needs replicas; it lives on the chip or in remote memory."""
    if not plan.shard_state:
        return
    if plan.replicas == 1:
        raise ValueError(
            "shard_state=True with replicas=1: there is nothing to shard; use 2 replicas or more"
        )
