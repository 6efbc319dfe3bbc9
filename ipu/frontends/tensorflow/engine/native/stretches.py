"""Turns of a plan: nodes that run below their kernels or by them, and what crosses between.

Source    docs/semantics.md §2 (numbering).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fpsim.array import Array
from fpsim.elementwise.notes import Again
from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.frontends.tensorflow.engine.native.steps import PlannedStep
from ipu.machine.cost.ledger import LedgerRow
from ipu.run.places import DIRECTIONS, Place

__all__ = ["NOTHING", "Border", "NativeNode", "PlanTurn", "Stretch"]


class NativeNode(NamedTuple):
    """A node that runs without its kernel.

    runs    calls, and where the numbers of each begin.
    draws   operations that round stochastically.
    rows    of the ledger, by tensor.
    """

    runs: tuple[tuple[Again, int], ...]
    draws: int
    rows: tuple[tuple[str, LedgerRow], ...]
    cycles: int


#: Of a node whose outputs are there.
NOTHING = NativeNode((), 0, (), 0)


class Border(NamedTuple):
    """A value of another node: its shape, and the copy that native nodes read, if any does."""

    slot: int
    shape: tuple[int, ...]
    copy: Array | None

    def takes(self, value: Any) -> bool:
        """Whether a value of now is alike; it is in the copy then."""
        if value.shape != self.shape:
            return False
        if self.copy is not None:
            if value.context is not self.copy.context:
                return False
            self.copy.carrier[...] = value.carrier
        return True


class PlanTurn(NamedTuple):
    """A step that runs, and its number.

    native     None: its kernel runs.
    borders    of its outputs.
    placed     what places its operations where the step does not: a step before it does.
    """

    number: int
    step: PlannedStep
    native: NativeNode | None
    borders: tuple[Border, ...]
    placed: Callable[[int], None] | None


class Stretch:
    """Turns up to a function that is called: the numbers of their operations are taken at once.

    Within them no two nodes have one place; a function's may have those of nodes outside. A
    function of the host may change the seed.

    begin    number of the first step.
    """

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.turns: list[PlanTurn] = []
        self._drawn: list[tuple[str, str, int]] = []
        self.first: dict[int, int] = {}
        self._n_draws = 0

    def add(self, turn: PlanTurn) -> None:
        """A turn behind the others."""
        self.turns.append(turn)
        if turn.native is not None and turn.native.draws:
            site = turn.step.site
            self.first[turn.number] = self._n_draws
            self._drawn.append((site.node.name, site.direction, turn.native.draws))
            self._n_draws += turn.native.draws

    def places(self, machine: Machine) -> Iterator[tuple[Place, int]]:
        """Where each node that draws stands now, and how often it does."""
        if not self._drawn:
            return
        replica = machine.first_replica
        now = {direction: machine.place("", direction, replica) for direction in DIRECTIONS}
        for name, direction, n in self._drawn:
            step, micro_batch, replica, _, _ = now[direction]
            yield Place(step, micro_batch, replica, name, direction), n

    def give_back(self, machine: Machine, number: int) -> None:
        """The turns from this number on have drawn nothing."""
        n = sum(first < number for first in self.first)
        machine.clock.give_each_back(list(self.places(machine))[n:])
