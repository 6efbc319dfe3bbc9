"""Nodes of a plan below their kernels: native calls, on memory that stays from run to run.

A plan runs node by node when it first meets inputs of these shapes and formats. Then what its nodes
ask of the machine is noted (`fpsim.elementwise.notes`), and from there on the calls run again, each
with the random bits of its node's place. Values, flags, random bits and their numbers, ledger and
cycles are those of the kernels.

    native    types in `_NATIVE`, whose kernels decide by shapes, formats and attributes alone, but
              in calls that are noted; everything that they read is memory of a native node, a copy
              of what another node gives (`_Border`), or a constant.
    view      types in `_VIEWS`: the result is a part of such memory, and nothing runs.
    fixed     what follows from constants and shapes alone is there already.
    others    run by their kernels. What keeps its inputs (variables, queues, lists, functions)
              gets copies of memory that stays.

Where a call has no result for the numbers of now, or a shape is another one, the nodes from there
on run by their kernels. So do all where something looks at single operations.

Source    docs/semantics.md §2 (numbering).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.notes import Again
from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.frontends.tensorflow.kernels.table import KernelEntry, NodeSite
from ipu.machine.cost.ledger import LedgerRow
from ipu.ops.in_one_call import may_join
from ipu.run.noted import KnownMemory, in_order, noted_on
from ipu.run.places import DIRECTIONS, Place, number

__all__ = ["NativePlan", "NativePlans", "PlannedStep", "has_native_nodes", "outputs_of"]

_COMPUTING = """
    Add AddN AddV2 BatchMatMul BatchMatMulV2 BiasAdd BiasAddGrad Cast Conv2D Conv2DBackpropFilter
    Conv2DBackpropInput DepthwiseConv2dNative Div Erf Exp Log MatMul Mean Mul Neg RealDiv Reciprocal
    ReciprocalGrad Relu ReluGrad Rsqrt RsqrtGrad Sigmoid SigmoidGrad Softmax Sqrt SqrtGrad Square
    SquaredDifference Sub Sum Tanh TanhGrad
"""
_NATIVE = frozenset(_COMPUTING.split())
_VIEWS = frozenset((
    "CheckNumerics", "ExpandDims", "Identity", "PreventGradient", "Reshape", "Snapshot", "Squeeze",
    "StopGradient",
))
#: What follows from shapes; moves of constants are fixed too.
_SHAPES = frozenset(("Rank", "Shape", "ShapeN", "Size"))
_MOVES = frozenset((
    "BroadcastTo", "ConcatV2", "ExpandDims", "Fill", "Identity", "Pack", "Reshape", "Slice",
    "Squeeze", "StridedSlice", "Tile", "Transpose",
))

#: Functions of the host, which may do anything.
_OF_HOST = frozenset(("PyFunc", "EagerPyFunc"))

#: Runs with inputs alike before calls are noted: rules that run in one call then do.
_FIRST_RUNS = 2
#: Runs in which a call had no result, after which the nodes run by their kernels.
_MOST_FALLS = 8
#: Kinds of inputs that are kept.
_KEPT = 2
#: Bytes that the memory of one plan may take.
_MOST_BYTES = 1 << 28


class PlannedStep(Protocol):
    """A node with its places in a frame (`engine.interpret`)."""

    site: NodeSite
    entry: KernelEntry | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    is_joint: bool
    run: Callable[..., Any]
    #: Whether it may keep its inputs longer than the plan runs.
    keeps: bool
    #: Values that no later step reads.
    dead: tuple[int, ...]
    place: Callable[[int], None] | None


class _NativeNode(NamedTuple):
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
_NOTHING = _NativeNode((), 0, (), 0)


class _Border(NamedTuple):
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


class _PlanTurn(NamedTuple):
    """A step that runs, and its number.

    native     None: its kernel runs.
    borders    of its outputs.
    placed     what places its operations where the step does not: a step before it does.
    """

    number: int
    step: PlannedStep
    native: _NativeNode | None
    borders: tuple[_Border, ...]
    placed: Callable[[int], None] | None


class _Stretch:
    """Turns up to a function that is called: the numbers of their operations are taken at once.

    Within them no two nodes have one place; a function's may have those of nodes outside. A
    function of the host may change the seed.

    begin    number of the first step.
    """

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.turns: list[_PlanTurn] = []
        self._drawn: list[tuple[str, str, int]] = []
        self.first: dict[int, int] = {}
        self._n_draws = 0

    def add(self, turn: _PlanTurn) -> None:
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


def may_run_below(machine: Machine) -> bool:
    """Whether nothing looks at single operations, and nothing but the kernels changes results."""
    run, device = machine.run, machine.device
    return (
        may_join(device) and device.notes is None and device.counts is None
        and device.compute is None and not device.clock.first and not device.puts_off
        and not run.is_watched and machine.shadows is None
        and machine.choices.restoring.is_empty and run.account.watching is None
    )


def has_native_nodes(steps: Sequence[PlannedStep]) -> bool:
    """Whether some steps may run below their kernels."""
    return any(step.site.node.type in _NATIVE for step in steps)


class NativePlans:
    """The native calls of a plan, by what decides them beside numbers."""

    def __init__(self, machine: Machine, template: Sequence[Any], inputs: Sequence[int],
                 steps: Sequence[PlannedStep], results: Sequence[int]) -> None:
        self._machine, self._template, self._inputs = machine, template, inputs
        self._steps, self._results = steps, results
        self._plans: dict[tuple[Any, ...], NativePlan] = {}
        self._has_recipe = any(step.site.policy.recipe is not None for step in steps)

    def find(self, frame: Sequence[Any]) -> NativePlan | None:
        """Of a frame with these inputs; None where all nodes have to run by their kernels."""
        if self._has_recipe or not may_run_below(self._machine):
            return None
        rules = _rules_of(self._machine)
        key = (*map(id, rules), *[_facts(frame[slot]) for slot in self._inputs])
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _KEPT:
                self._plans.clear()
            plan = self._plans[key] = NativePlan(
                self._machine, self._template, self._inputs, self._steps, self._results, rules)
        return plan


def _rules_of(machine: Machine) -> tuple[object, ...]:
    """What decides the calls of a node beside its inputs."""
    device = machine.device
    return (
        device.control, device.source, device.options, device.planner, device.conv_planner,
        device.partials, device.conv_partials,
    )


def _facts(value: Any) -> Any:
    """What an input decides beside its numbers."""
    if isinstance(value, Array):
        return value.carrier.shape, value.context
    if isinstance(value, (np.ndarray, np.generic)):
        return value.shape, value.dtype
    return type(value)


class NativePlan:
    """The native calls of a plan for inputs alike.

    rules    by which they were noted, kept alive.
    """

    def __init__(
        self, machine: Machine, template: Sequence[Any], inputs: Sequence[int],
        steps: Sequence[PlannedStep], results: Sequence[int], rules: Sequence[object],
    ) -> None:
        self._machine, self._template, self._inputs = machine, template, inputs
        self._steps, self._results, self._rules = steps, results, rules
        self._n_runs = 0
        #: Runs in which nodes had to run by their kernels.
        self.n_falls = 0
        self._memory = KnownMemory()
        self._alive: list[Any] = []
        #: Values that stay, by slot; of other nodes copies that native nodes read.
        self._values: dict[int, Array] = {}
        self._fixed: dict[int, Any] = {}
        #: First slots that variables were read to, by the slots of their handles.
        self._reads: dict[int, int] = {}
        #: Carriers of what is fixed, by identity.
        self._constants: set[int] = set()
        #: Slots that native nodes read, and those whose values stay in the frame.
        self._read: set[int] = set()
        self._standing: dict[int, Any] = {}
        self._stretches: list[_Stretch] = []
        self._borders: tuple[_Border, ...] = ()
        self._placed = list(_places(steps))

    @property
    def is_ready(self) -> bool:
        """Whether calls are noted."""
        return bool(self._stretches) and self.n_falls < _MOST_FALLS

    @property
    def n_native(self) -> int:
        """Nodes that run below their kernels."""
        return sum(t.native is not None for s in self._stretches for t in s.turns)

    def is_due(self) -> bool:
        """Whether this run is the one in which calls are noted."""
        self._n_runs += 1
        return self._n_runs == _FIRST_RUNS + 1

    # The first time -------------------------------------------------------------------------

    def note(self, frame: list[Any], begin: Callable[[PlannedStep], None]) -> None:
        """Run the nodes by their kernels, and note what they call.

        begin    called with each step before it runs.
        """
        for slot, value in enumerate(self._template):
            if value is not None:
                self._fix(slot, value)
        natives, is_steady = [], True
        for step in self._steps:
            natives.append(self._note_step(frame, step, begin))
            is_steady = is_steady and self._is_of_now()
        if self._memory.n_bytes > _MOST_BYTES or not is_steady:
            self._own_results(frame)
            self._forget()
            return
        self._borders = self._borders_of(frame, self._inputs)
        stretch = _Stretch(0)
        for n, (step, native) in enumerate(zip(self._steps, natives, strict=True)):
            if native is None or native.runs:  # others are views, or fixed
                borders = () if native is not None else self._borders_of(frame, step.outputs)
                placed = self._placed[n] if step.place is None else None
                stretch.add(_PlanTurn(n, step, native, borders, placed))
            if step.is_joint or step.site.node.type in _OF_HOST:
                self._stretches.append(stretch)
                stretch = _Stretch(n + 1)
        self._stretches.append(stretch)
        self._own_results(frame)

    def _is_of_now(self) -> bool:
        """Whether calls are still those of the rules: a function may have changed the machine."""
        rules = zip(_rules_of(self._machine), self._rules, strict=True)
        return may_run_below(self._machine) and all(now is before for now, before in rules)

    def _forget(self) -> None:
        """Nodes run by their kernels from now on."""
        self.n_falls = _MOST_FALLS
        self._values, self._fixed, self._standing = {}, {}, {}
        self._memory, self._alive = KnownMemory(), []

    def _fix(self, slot: int, value: Any) -> None:
        self._fixed[slot] = self._standing[slot] = value
        if isinstance(value, Array):
            self._know(value)
            self._values[slot] = value
            self._constants.add(id(value.carrier))

    def _know(self, value: Array) -> None:
        self._memory.add(*np.lib.array_utils.byte_bounds(value.carrier))
        self._alive.append(value)

    def _borders_of(self, frame: Sequence[Any], slots: Sequence[int]) -> tuple[_Border, ...]:
        return tuple([
            _Border(slot, value.shape, self._values[slot] if slot in self._read else None)
            for slot in slots
            if isinstance(value := frame[slot], (Array, np.ndarray)) and slot not in self._standing
        ])

    def _note_step(
        self, frame: list[Any], step: PlannedStep, begin: Callable[[PlannedStep], None]
    ) -> _NativeNode | None:
        if self._is_read_again(frame, step):
            self._share(frame, step)
            return _NOTHING
        begin(step)
        node = step.site.node
        values = [frame[slot] for slot in step.inputs]
        is_fixed = self._is_fixed(step)
        is_native = not is_fixed and self._may_be_native(step, values)
        if is_native:
            values = [self._static(slot, value) for slot, value in
                      zip(step.inputs, values, strict=True)]
        elif step.keeps:
            values = [self._owned(value) for value in values]
        native = None
        if is_fixed:
            outputs, is_fixed = self._moved(step, values)
        elif is_native and node.type in _NATIVE:
            outputs, native = self._noted(step, values)
        else:
            outputs = outputs_of(step, values)
            if is_native and self._are_views(outputs):
                native = _NOTHING
        for slot, value in zip(step.outputs, outputs, strict=True):
            frame[slot] = value
            if is_fixed:
                self._fix(slot, value)
            elif native is not None:
                self._values[slot] = self._standing[slot] = value
        if native is not None:
            self._read |= {slot for slot in step.inputs if slot not in self._standing}
        return _NOTHING if is_fixed else native

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
        if node.type in _SHAPES:
            return True
        is_exact = step.entry is None or node.type in _MOVES
        return is_exact and all(slot in self._fixed for slot in step.inputs)

    def _may_be_native(self, step: PlannedStep, values: Sequence[Any]) -> bool:
        node = step.site.node
        if step.is_joint or node.type not in _NATIVE | _VIEWS or "kernel" in node.marks:
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
            self._know(static)
        return static

    def _are_views(self, outputs: Sequence[Any]) -> bool:
        return all(isinstance(x, Array) and self._memory.holds(x.carrier) for x in outputs)

    def _moved(self, step: PlannedStep, values: Sequence[Any]) -> tuple[Sequence[Any], bool]:
        """The outputs of a node, and whether the machine was asked for nothing, as a cast."""
        outputs, work = noted_on(self._machine.device, lambda: outputs_of(step, values))
        is_asked = bool(work.notes.calls or work.rows or work.cycles)
        return outputs, work.notes.is_whole and not is_asked

    def _noted(
        self, step: PlannedStep, values: Sequence[Any]
    ) -> tuple[Sequence[Any], _NativeNode | None]:
        """The outputs of a node, and its calls; None where they are not all of it."""
        device, clock = self._machine.device, self._machine.clock
        first = clock.k
        outputs, work = noted_on(device, lambda: outputs_of(step, values))
        runs, numbers = in_order(work.notes)
        drawn = [number(clock.place, k) for k in range(first, clock.k)]
        is_elsewhere = step.place is None and bool(numbers)
        if not work.notes.is_whole or drawn != numbers or is_elsewhere:
            return outputs, None
        for call in work.notes.calls:
            self._alive += call.results
            if not self._memory.takes(
                call, lambda x: work.notes.is_constant(x) or id(x) in self._constants
            ):
                return outputs, None
        if not self._are_views(outputs) or not _repeats(runs, numbers, outputs):
            return outputs, None
        self._alive += outputs
        return outputs, _NativeNode(runs, len(numbers), tuple(work.rows), work.cycles)

    # Every time -----------------------------------------------------------------------------

    def run(self, frame: list[Any], begin: Callable[[PlannedStep], None]) -> None:
        """Compute the results of a frame that holds inputs and constants.

        begin    called with each step whose place is asked for.
        """
        for slot, value in self._standing.items():
            frame[slot] = value
        done = -1
        if all(border.takes(frame[border.slot]) for border in self._borders):
            done = self._run_turns(frame, begin)
        if (place := self._placed[done + 1]) is not None:
            place(0)
        if done + 1 < len(self._steps):
            self.n_falls += 1
            for step in self._steps[done + 1 :]:
                self._by_kernel(frame, step, begin)
        self._own_results(frame)

    def _run_turns(self, frame: list[Any], begin: Callable[[PlannedStep], None]) -> int:
        """The last step that has run: of all of them, or before one that fell."""
        machine = self._machine
        for stretch in self._stretches:
            if stretch.begin and not self._is_of_now():
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
        self, frame: list[Any], turn: _PlanTurn, numbers: NDArray[np.uint64], first: dict[int, int],
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
            values = [self._owned(value) for value in values]
        for slot, value in zip(step.outputs, outputs_of(step, values), strict=True):
            frame[slot] = value

    # What leaves ----------------------------------------------------------------------------

    def _own_results(self, frame: list[Any]) -> None:
        for slot in self._results:
            frame[slot] = self._owned(frame[slot])

    def _owned(self, value: Any) -> Any:
        """A value in memory that no later run writes."""
        if isinstance(value, Array):
            is_ours = self._memory.holds(value.carrier)
            return value.like(value.carrier.copy()) if is_ours else value
        if isinstance(value, (tuple, list)):
            items = [self._owned(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return value


def _places(steps: Sequence[PlannedStep]) -> Iterator[Callable[[int], None] | None]:
    """What has placed the operations before each step, and behind all.

    None: nothing since a function was called, whose own steps have.
    """
    last = None
    for step in steps:
        yield last
        last = None if step.is_joint else step.place or last
    yield last


def outputs_of(step: PlannedStep, values: Sequence[Any]) -> Sequence[Any]:
    """What the kernel of a step gives for these inputs."""
    result = step.run([values])[0] if step.is_joint else step.run(*values)
    outputs: Sequence[Any] = (result,) if len(step.outputs) == 1 else result
    return outputs


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
