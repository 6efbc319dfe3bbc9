"""A plan's native calls, run again: each computes from what its memory holds now.

Where a call has no result for the numbers of now, or a shape is another one, the nodes from there
on run by their kernels. So do all where something looks at single operations.

Source    docs/semantics.md §2 (numbering).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.frontends.tensorflow.engine.native.memory import StayingMemory
from ipu.frontends.tensorflow.engine.native.rules import are_rules_of
from ipu.frontends.tensorflow.engine.native.steps import PlannedStep, outputs_of, places_before
from ipu.frontends.tensorflow.engine.native.stretches import Border, PlanTurn, Stretch

__all__ = ["NativeCalls"]


class NativeCalls:
    """The native calls of a plan for inputs alike.

    rules       by which they were noted, kept alive.
    standing    values that stay in the frame, by slot.
    borders     of the inputs.
    """

    def __init__(
        self, machine: Machine, steps: Sequence[PlannedStep], rules: Sequence[object],
        memory: StayingMemory, standing: Mapping[int, Any], borders: Sequence[Border],
        stretches: Sequence[Stretch],
    ) -> None:
        self._machine, self._steps, self._rules = machine, steps, rules
        self._memory, self._standing = memory, standing
        self._borders, self._stretches = borders, stretches
        self._placed = list(places_before(steps))

    @property
    def n_native(self) -> int:
        """Nodes that run below their kernels."""
        return sum(t.native is not None for s in self._stretches for t in s.turns)

    def run(
        self, frame: list[Any], begin: Callable[[PlannedStep], None], results: Sequence[int]
    ) -> bool:
        """Compute the results of a frame that holds inputs and constants.

        begin    called with each step whose place is asked for.

        False    nodes had to run by their kernels.
        """
        for slot, value in self._standing.items():
            frame[slot] = value
        done = -1
        if all(border.takes(frame[border.slot]) for border in self._borders):
            done = self._run_turns(frame, begin)
        if (place := self._placed[done + 1]) is not None:
            place(0)
        for step in self._steps[done + 1 :]:
            self._by_kernel(frame, step, begin)
        for slot in results:
            frame[slot] = self._memory.owned(frame[slot])
        return done + 1 == len(self._steps)

    def _run_turns(self, frame: list[Any], begin: Callable[[PlannedStep], None]) -> int:
        """The last step that has run: of all of them, or before one that fell."""
        machine = self._machine
        for stretch in self._stretches:
            if stretch.begin and not are_rules_of(machine, self._rules):
                return stretch.begin - 1
            numbers = machine.clock.take_each(stretch.places(machine))
            for turn in stretch.turns:
                try:
                    last = self._run_turn(frame, turn, numbers, stretch.first, begin)
                except BaseException:
                    stretch.give_back(machine, turn.number)
                    raise
                if last is not None:
                    stretch.give_back(machine, last + 1)
                    return last
        return len(self._steps) - 1

    def _run_turn(
        self, frame: list[Any], turn: PlanTurn, numbers: NDArray[np.uint64], first: dict[int, int],
        begin: Callable[[PlannedStep], None],
    ) -> int | None:
        """None; or the last step that has run, where nodes have to run by their kernels."""
        native, device = turn.native, self._machine.device
        if native is None:
            if turn.placed is not None:
                turn.placed(0)
            self._by_kernel(frame, turn.step, begin)
            is_alike = all(border.takes(frame[border.slot]) for border in turn.borders)
            for slot in turn.step.dead:
                frame[slot] = None
            return None if is_alike else turn.number
        begun = first.get(turn.number, 0)
        for again, i in native.runs:
            if not again(numbers, begun + i):
                return turn.number - 1
        for tensor, row in native.rows:
            device.ledger.add(tensor, row)
        device.vector_cycles += native.cycles
        return None

    def _by_kernel(
        self, frame: list[Any], step: PlannedStep, begin: Callable[[PlannedStep], None]
    ) -> None:
        begin(step)
        values = [frame[slot] for slot in step.inputs]
        if step.keeps:
            values = [self._memory.owned(value) for value in values]
        for slot, value in zip(step.outputs, outputs_of(step, values), strict=True):
            frame[slot] = value

