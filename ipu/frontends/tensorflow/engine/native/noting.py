"""The run in which a plan's nodes run by their kernels, and what they call is noted.

Source    docs/semantics.md §2 (numbering).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fpsim.array import Array
from fpsim.elementwise.notes import Again
from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.frontends.tensorflow.engine.native.memory import StayingMemory
from ipu.frontends.tensorflow.engine.native.rules import are_rules_of
from ipu.frontends.tensorflow.engine.native.running import NativeCalls
from ipu.frontends.tensorflow.engine.native.steps import (
    MOVES,
    NATIVE,
    OF_HOST,
    SHAPES,
    VIEWS,
    PlannedStep,
    outputs_of,
    places_before,
)
from ipu.frontends.tensorflow.engine.native.stretches import (
    NOTHING,
    Border,
    NativeNode,
    PlanTurn,
    Stretch,
)
from ipu.run.noted import in_order, noted_on
from ipu.run.places import number

__all__ = ["Noting"]

#: Bytes that the memory of one plan may take.
_MOST_BYTES = 1 << 28


class Noting:
    """What the nodes of a plan call, for inputs alike.

    rules    by which they call it.
    """

    def __init__(
        self, machine: Machine, template: Sequence[Any], steps: Sequence[PlannedStep],
        rules: Sequence[object],
    ) -> None:
        self._machine, self._steps, self._rules = machine, steps, rules
        self._memory = StayingMemory()
        #: Values that stay, by slot; of other nodes copies that native nodes read.
        self._values: dict[int, Array] = {}
        self._fixed: dict[int, Any] = {}
        #: First slots that variables were read to, by the slots of their handles.
        self._reads: dict[int, int] = {}
        #: Slots that native nodes read, and those whose values stay in the frame.
        self._read: set[int] = set()
        self._standing: dict[int, Any] = {}
        for slot, value in enumerate(template):
            if value is not None:
                self._fix(slot, value)

    def run(
        self, frame: list[Any], begin: Callable[[PlannedStep], None], inputs: Sequence[int],
        results: Sequence[int],
    ) -> NativeCalls | None:
        """Run the nodes by their kernels. None: nothing of it may run again.

        begin    called with each step before it runs.
        """
        natives, is_steady = [], True
        for step in self._steps:
            natives.append(self._note_step(frame, step, begin))
            is_steady = is_steady and are_rules_of(self._machine, self._rules)
        calls = None
        if is_steady and self._memory.n_bytes <= _MOST_BYTES:
            borders = self._borders_of(frame, inputs)
            stretches = self._stretches(frame, natives)
            calls = NativeCalls(self._machine, self._steps, self._rules, self._memory,
                                self._standing, borders, stretches)
        for slot in results:
            frame[slot] = self._memory.owned(frame[slot])
        return calls

    def _stretches(
        self, frame: Sequence[Any], natives: Sequence[NativeNode | None]
    ) -> list[Stretch]:
        places = list(places_before(self._steps))
        stretches, stretch = [], Stretch(0)
        for n, (step, native) in enumerate(zip(self._steps, natives, strict=True)):
            if native is None or native.runs:  # others are views, or fixed
                borders = () if native is not None else self._borders_of(frame, step.outputs)
                placed = places[n] if step.place is None else None
                stretch.add(PlanTurn(n, step, native, borders, placed))
            if step.is_joint or step.site.node.type in OF_HOST:
                stretches.append(stretch)
                stretch = Stretch(n + 1)
        return [*stretches, stretch]

    def _fix(self, slot: int, value: Any) -> None:
        self._fixed[slot] = self._standing[slot] = value
        if isinstance(value, Array):
            self._memory.add(value, is_constant=True)
            self._values[slot] = value

    def _borders_of(self, frame: Sequence[Any], slots: Sequence[int]) -> tuple[Border, ...]:
        return tuple([
            Border(slot, value.shape, self._values[slot] if slot in self._read else None)
            for slot in slots
            if isinstance(value := frame[slot], (Array, np.ndarray)) and slot not in self._standing
        ])

    def _note_step(
        self, frame: list[Any], step: PlannedStep, begin: Callable[[PlannedStep], None]
    ) -> NativeNode | None:
        if self._is_read_again(frame, step):
            self._share(frame, step)
            return NOTHING
        begin(step)
        node = step.site.node
        values = [frame[slot] for slot in step.inputs]
        is_fixed = self._is_fixed(step)
        is_native = not is_fixed and self._may_be_native(step, values)
        if is_native:
            values = [self._static(slot, value) for slot, value in
                      zip(step.inputs, values, strict=True)]
        elif step.keeps:
            values = [self._memory.owned(value) for value in values]
        native = None
        if is_fixed:
            outputs, is_fixed = self._moved(step, values)
        elif is_native and node.type in NATIVE:
            outputs, native = self._noted(step, values)
        else:
            outputs = outputs_of(step, values)
            if is_native and self._memory.holds(outputs):
                native = NOTHING
        for slot, value in zip(step.outputs, outputs, strict=True):
            frame[slot] = value
            if is_fixed:
                self._fix(slot, value)
            elif native is not None:
                self._values[slot] = self._standing[slot] = value
        if native is not None:
            self._read |= {slot for slot in step.inputs if slot not in self._standing}
        return NOTHING if is_fixed else native

    def _is_read_again(self, frame: Sequence[Any], step: PlannedStep) -> bool:
        """Whether it reads a variable that was read before, and nothing may have written it."""
        if step.keeps:
            self._reads.clear()
        if step.site.node.type != "ReadVariableOp":
            return False
        (handle,), (slot,) = step.inputs, step.outputs
        first = self._reads.setdefault(handle, slot)
        return first != slot and isinstance(frame[first], Array)

    def _share(self, frame: list[Any], step: PlannedStep) -> None:
        """A variable that is read again is the copy of the first time."""
        first = self._reads[step.inputs[0]]
        (slot,) = step.outputs
        frame[slot] = self._static(first, frame[first])
        self._read.add(first)
        self._values[slot] = self._standing[slot] = frame[slot]

    def _is_fixed(self, step: PlannedStep) -> bool:
        """Whether the outputs follow from constants and shapes."""
        node = step.site.node
        if step.is_joint or node.op.op_def.is_stateful or not step.outputs:
            return False
        if any(t.dtype in (tf.resource, tf.variant) for t in (*node.inputs, *node.outputs)):
            return False
        if node.type in SHAPES:
            return True
        is_exact = step.entry is None or node.type in MOVES
        return is_exact and all(slot in self._fixed for slot in step.inputs)

    def _may_be_native(self, step: PlannedStep, values: Sequence[Any]) -> bool:
        node = step.site.node
        if step.is_joint or node.type not in NATIVE | VIEWS or "kernel" in node.marks:
            return False
        return any(isinstance(value, Array) for value in values) and all(
            isinstance(value, Array) or slot in self._fixed
            for slot, value in zip(step.inputs, values, strict=True)
        )

    def _static(self, slot: int, value: Any) -> Any:
        """A value in memory that stays."""
        if not isinstance(value, Array):
            return value
        static = self._values.get(slot)
        if static is None:
            static = self._values[slot] = value.like(np.array(value.carrier, order="C"))
            self._memory.add(static)
        return static

    def _moved(self, step: PlannedStep, values: Sequence[Any]) -> tuple[Sequence[Any], bool]:
        """The outputs of a node, and whether the machine was asked for nothing, as a cast."""
        outputs, work = noted_on(self._machine.device, lambda: outputs_of(step, values))
        is_asked = bool(work.notes.calls or work.rows or work.cycles)
        return outputs, work.notes.is_whole and not is_asked

    def _noted(
        self, step: PlannedStep, values: Sequence[Any]
    ) -> tuple[Sequence[Any], NativeNode | None]:
        """The outputs of a node, and its calls; None where they are not all of it."""
        device, clock = self._machine.device, self._machine.clock
        first = clock.k
        outputs, work = noted_on(device, lambda: outputs_of(step, values))
        runs, numbers = in_order(work.notes)
        drawn = [number(clock.place, k) for k in range(first, clock.k)]
        is_elsewhere = step.place is None and bool(numbers)
        if not work.notes.is_whole or drawn != numbers or is_elsewhere:
            return outputs, None
        if not self._memory.add_calls(work.notes) or not self._memory.holds(outputs):
            return outputs, None
        if not _repeats(runs, numbers, outputs):
            return outputs, None
        self._memory.keep(outputs)
        return outputs, NativeNode(runs, len(numbers), tuple(work.rows), work.cycles)


def _repeats(
    runs: Sequence[tuple[Again, int]], numbers: Sequence[int], outputs: Sequence[Array]
) -> bool:
    """Whether the calls give the same results once more; these are as they were."""
    before, drawn = [x.carrier.copy() for x in outputs], np.array(numbers, np.uint64)
    is_equal = all(again(drawn, first) for again, first in runs) and all(
        x.carrier.tobytes() == values.tobytes() for x, values in zip(outputs, before, strict=True)
    )
    for x, values in zip(outputs, before, strict=True):
        x.carrier[...] = values
    return is_equal
