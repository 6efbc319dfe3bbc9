"""The loop: micro-batch after micro-batch runs as one piece; marks tell which program it is in.

No schedule moves a bit, so none is acted out: slots, stash, cycles and memory follow from the plan
and from what one micro-batch has cost. A mark names the program of the plan that begins. Traps tell
it, and cycles are counted under it.

Several micro-batches may trap in one step. The trap that is raised is that of the first program in
the order of the plan, as on the machine: a micro-batch behind one that trapped still runs if the
plan begins it before that trap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from fpsim.records.flags import FloatingPointTrap
from ipu.machine.cost.planner import Planner
from ipu.machine.device import Device
from ipu.machine.target import Target
from ipu.plan.cycles import compute_cycles
from ipu.plan.plan import Plan
from ipu.plan.schedule import Phase, Program

__all__ = ["MicroBatchLoop", "Spent"]

#: Phase, stage and branch of a program.
Key = tuple[Phase, int, int]


class Spent(NamedTuple):
    """Cycles of products and thread cycles of vector work that a device has spent.

    temporary    bytes of the largest temporary of a product since `start`.
    operands     cycles in which operands of products come from other tiles, if they lie there.
    saving       cycles less if products split K over tiles.

    >>> from ipu.machine.target import MK2
    >>> Spent(1000, 8833).cycles(MK2)
    1002
    """

    products: int = 0
    vector: int = 0
    temporary: int = 0
    operands: int = 0
    saving: int = 0

    @classmethod
    def start(cls, device: Device) -> Spent:
        """Cycles since it was created; what is temporary counts from here."""
        device.ledger.temporary = 0
        return cls.by(device)

    @classmethod
    def by(cls, device: Device) -> Spent:
        """Cycles since it was created."""
        ledger = device.ledger
        return cls(
            ledger.cycles, device.vector_cycles, ledger.temporary, ledger.operand_cycles,
            ledger.split_saving,
        )

    def __sub__(self, before: Spent) -> Spent:
        return Spent(
            self.products - before.products, self.vector - before.vector, self.temporary,
            self.operands - before.operands, self.saving - before.saving,
        )

    def plus(self, more: Spent) -> Spent:
        """Both, one after the other."""
        return Spent(
            self.products + more.products, self.vector + more.vector,
            max(self.temporary, more.temporary), self.operands + more.operands,
            self.saving + more.saving,
        )

    def cycles(self, target: Target) -> int:
        """Of one IPU: vector work is spread over all worker threads."""
        return compute_cycles(self.products, self.vector, target)


class MicroBatchLoop:
    """The micro-batches of one step.

    devices          of the replicas; one for all where they take turns on it.
    first_replica    number of the first replica of this process.
    measures         count the cycles of the first replica's first micro-batch.
    planners         choices of the cost model on IPUs; others have the device's.

    >>> device = Device()
    >>> loop = MicroBatchLoop(Plan([abs, abs], count=4), [device])
    >>> def run(micro_batch, replica):
    ...     loop.mark(Phase.FORWARD, 1)
    ...     if micro_batch == 3:
    ...         print(device.program)
    >>> loop.run(1, run)
    replica 0, IPU 1, stage 1, micro-batch 3, slot 4
    """

    def __init__(
        self, plan: Plan, devices: Sequence[Device], first_replica: int = 0, *,
        measures: bool = False, planners: Mapping[int, Planner] | None = None,
    ) -> None:
        self.plan, self._planners = plan, planners or {}
        self._spent: dict[Key, Spent] = {}
        self._devices, self._first_replica, self._measures = devices, first_replica, measures
        self._programs = {p[2:]: (rank, p) for rank, p in enumerate(plan.programs)}
        self._of_micro_batch: dict[int, list[Program]] = {}
        for program in plan.programs:
            self._of_micro_batch.setdefault(program.micro_batch, []).append(program)
        self._micro_batch = self._replica = 0
        self._rank = 0
        self._planner = devices[0].planner
        #: The program that is measured now, and what had been spent before it.
        self._open: tuple[Key, Spent] | None = None

    def run(self, replicas: int, run: Callable[[int, int], None]) -> None:
        """Run every micro-batch of every replica: `run(micro_batch, replica)`.

        Raises    FloatingPointTrap, that of the first program in the plan's order.
        """
        first: tuple[tuple[int, int], FloatingPointTrap] | None = None
        for micro_batch in range(self.plan.count):
            begin = self._programs[Phase.FORWARD, 0, micro_batch, 0][0]
            for replica in range(replicas):
                if first is not None and first[0] < (begin, replica):
                    continue
                try:
                    with self._at(micro_batch, replica):
                        run(micro_batch, replica)
                except FloatingPointTrap as trap:
                    place = self._rank, replica
                    if first is None or place < first[0]:
                        first = place, trap
                except Exception:
                    if first is None:
                        raise
                    raise first[1] from None  # what trapped may have left work undone
        if first is not None:
            raise first[1]

    def programs(self, micro_batch: int) -> list[Program]:
        """Those of a micro-batch, in order."""
        return self._of_micro_batch[micro_batch]

    def mark(self, phase: Phase, stage: int, branch: int = 0) -> None:
        """What follows is of this program of the micro-batch that runs."""
        self.end()
        rank, program = self._programs[phase, stage, self._micro_batch, branch]
        device = self._device
        self._rank, device.program = rank, self._name(program)
        device.planner = self._planners.get(program.ipu, self._planner)
        if self._measures and not self._micro_batch and not self._replica:
            self._open = (phase, stage, branch), Spent.start(self._device)

    def end(self) -> None:
        """The program that was marked last has ended; what follows costs it nothing."""
        if self._open is not None:
            key, before = self._open
            more = Spent.by(self._device) - before
            self._spent[key] = self._spent.get(key, Spent()).plus(more)
            self._open = None

    @property
    def spent(self) -> Mapping[Key, Spent]:
        """What each phase, stage and branch took."""
        return self._spent

    @property
    def cycles(self) -> dict[Key, int]:
        """Cycles of each phase, stage and branch."""
        target = self._devices[0].target
        return {key: spent.cycles(target) for key, spent in self._spent.items()}

    @property
    def _device(self) -> Device:
        return self._devices[self._replica if len(self._devices) > 1 else 0]

    def _name(self, program: Program) -> str:
        return (
            f"replica {self._first_replica + self._replica}, IPU {program.ipu}, "
            f"stage {program.stage}, micro-batch {program.micro_batch}, slot {program.slot}"
        )

    @contextmanager
    def _at(self, micro_batch: int, replica: int) -> Iterator[None]:
        self._micro_batch, self._replica = micro_batch, replica
        device = self._device
        before, self._planner = device.program, device.planner
        try:
            yield
            self.end()
        finally:
            self._open = None
            device.program = before
            device.planner = self._planner
