"""The executor: a program on a machine, node by node, all replicas in step.

A `FramePlan` binds a program to a machine: every node becomes a `FrameStep`, a function from values
to values. What reaches a node, and how:

    values     Arrays, ndarrays and resources (engine.values); one frame of them for each replica.
    formats    by the data type; float32 by the policy of the node's layer. A node that computes
               gets float32 operands in its format, a node that moves (`keeps`) as they are. In the
               direction optimizer float32 operands keep the widest format that they hold.
    gradients  follow their forward node: its layer, its marks (`GraphProgram` says which).
    places     step, micro-batch, replica, name and direction, set before a node that may draw.
    joint      entries (`is_joint`) get the inputs of all replicas at once.
    functions  `NodeSite.plan` gives the plan of a function's graph; it inherits the direction.

A node without a kernel is refused when the plan is made, before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import ref

import tensorflow as tf

from fpsim import FloatingPointTrap
from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from ipu.frontends.tensorflow import kernels
from ipu.frontends.tensorflow.engine.errors import MachineError, UnsupportedNodeError, user_line
from ipu.frontends.tensorflow.engine.functions import called_graphs
from ipu.frontends.tensorflow.engine.listing import list_sites
from ipu.frontends.tensorflow.engine.losses import unscaling, wide_nodes
from ipu.frontends.tensorflow.engine.machine import EVALUATION, Machine
from ipu.frontends.tensorflow.engine.measuring import Measure
from ipu.frontends.tensorflow.engine.native.plans import NativePlans
from ipu.frontends.tensorflow.engine.native.steps import PlannedStep, has_native_nodes
from ipu.frontends.tensorflow.engine.node import Node
from ipu.frontends.tensorflow.engine.program import GraphProgram, has_effect, program_of
from ipu.frontends.tensorflow.engine.scaling import is_scaled
from ipu.frontends.tensorflow.engine.statistics import layer_of_metric, policy_of_metric
from ipu.frontends.tensorflow.engine.trace import losses_of
from ipu.frontends.tensorflow.engine.values import FORMATS
from ipu.frontends.tensorflow.engine.writes import has_gradient, written_inputs
from ipu.frontends.tensorflow.kernels.host import host_kernel
from ipu.frontends.tensorflow.kernels.moving.arrays import constant_value
from ipu.frontends.tensorflow.kernels.table import TABLE, KernelEntry, NodeSite, Run
from ipu.frontends.tensorflow.reports.directions import find_directions, gradient_owner
from ipu.frontends.tensorflow.reports.layers import OPTIMIZER, ScopeLayers, layer_of_variable
from ipu.frontends.tensorflow.reports.observing import observed
from ipu.learn.policy import FP32
from ipu.plan.memory import OutOfMemoryError
from ipu.run.places import ReplayStart

__all__ = ["FramePlan", "Leaving", "check_nodes", "plan_of"]

#: Is told the number and the value of an output when it has been computed.
Leaving = Callable[[int, Any], object]

kernels.load()


class FrameStep:
    """A node with its places in a frame."""

    __slots__ = (
        "dead", "entry", "inputs", "is_joint", "keeps", "outputs", "place", "run", "site", "start",
    )

    def __init__(self, site: NodeSite, entry: KernelEntry | None, run: Run) -> None:
        self.site, self.entry, self.run = site, entry, run
        self.is_joint = entry is not None and entry.is_joint
        #: Whether it may keep its inputs longer than the plan runs: functions, variables, lists.
        self.keeps = self.is_joint or has_effect(site.node.op) or any(
            tensor.dtype == tf.variant for tensor in (*site.node.inputs, *site.node.outputs)
        )
        self.inputs: tuple[int, ...] = ()
        self.outputs: tuple[int, ...] = ()
        #: Values that no later step reads.
        self.dead: tuple[int, ...] = ()
        self.place = _naming(site) if self.is_joint else _placing(site, entry)
        #: Where replica 0 stood before it.
        self.start: ReplayStart | None = None


class FramePlan:
    """A program on a machine.

    inputs       of `run`: values of the graph's placeholders, for each replica.
    direction    of the node that calls it, or of all of its nodes; "": each has its own.
    metric       whose function it is; "" for none.
    has_effects  it writes variables or queues.
    counts       it has a loop whose iterations are those of a training.
    """

    def __init__(
        self, machine: Machine, program: GraphProgram, direction: str = "", metric: str = "",
        gradients: dict[Format, None] | None = None,
    ) -> None:
        self.machine, self.program, self._metric = machine, program, metric
        #: Formats of gradients, of all plans of the program.
        self._gradients: dict[Format, None] = {} if gradients is None else gradients
        self.direction = direction
        self._parts: list[FramePlan] = []
        self._slots: dict[tuple[str, int], int] = {}
        self._template: list[Any] = []
        self._inputs = [self._slot(tensor) for tensor in program.inputs]
        self._steps = self._build()
        self._results = [self._slot(tensor) for tensor in program.outputs]
        self._bury()
        self._natives = NativePlans(
            machine, self._template, self._inputs, self._steps, self._results
        ) if has_native_nodes(self._steps) else None
        self.has_effects = any(has_effect(node.op) for node in program.nodes)
        self.counts: bool = any(part.counts or part.is_training for part in self._parts)
        #: Numbers of the outputs by their slots.
        self._outputs: dict[int, list[int]] = {}
        for number, slot in enumerate(self._results):
            self._outputs.setdefault(slot, []).append(number)
        #: The step that runs.
        self._at: PlannedStep | None = None
        #: What measures the first iterations; None: nothing does, or does any more.
        self.measure: Measure | None = None
        #: Set by the loop whose body this is.
        self.is_training: bool = False
        self.accumulation: int = max([program.accumulation, *(p.accumulation for p in self._parts)])

    # Building -------------------------------------------------------------------------------

    def _slot(self, tensor: Any) -> int:
        key = tensor.op.name, tensor.value_index
        if key not in self._slots:
            self._slots[key] = len(self._template)
            self._template.append(None)
        return self._slots[key]

    def _build(self) -> list[FrameStep]:
        entries = [_entry(node) for node in self.program.nodes]
        sites, steps = self._sites(), []
        list_sites(sites)
        for site, entry in zip(sites, entries, strict=True):
            run = _kernel(site, entry)
            shadows = self.machine.shadows
            if site.node.type == "Const":
                value = self._template[self._slot(site.node.outputs[0])] = run()
                if shadows is not None and isinstance(value, Array):
                    shadows.attach(value, constant_value(site))
                continue
            if shadows is not None:
                run = shadows.beside(site, entry, run)
            step = FrameStep(site, entry, observed(site, entry, run))
            step.inputs = tuple(self._slot(tensor) for tensor in site.node.inputs)
            step.outputs = tuple(self._slot(tensor) for tensor in site.node.outputs)
            steps.append(step)
        return steps

    def _sites(self) -> list[NodeSite]:
        directions = find_directions(self.program, self.direction)
        wide, edges = wide_nodes(self.program) if not self.machine.is_plain else (set(), set())
        _check_scaled(self.machine, self.program)
        scales, divided = unscaling(self.program) if not self.machine.is_plain else (set(), {})
        layers = ScopeLayers((node.layer for node in self.program.nodes), self.machine.variables)
        sites = []
        for node in self.program.nodes:
            direction = directions.of[node.name]
            owner = gradient_owner(node) if direction == "backward" else node
            layer = self._layer(owner, layers)
            policy = self.machine.policy_of(layer, owner.layer, direction)
            metric = self._metric_of(node)
            if metric:
                layer, policy = layer_of_metric(metric), policy_of_metric(
                    self.machine.policy, metric)
                self.machine.run.layer_names.add(layer)
            is_wide = node.name in wide or node.name in scales or self._enters_wide(node)
            site = NodeSite(
                self.machine.run,
                FP32 if is_wide else policy,
                OPTIMIZER if node.name in directions.optimiser else layer,
                direction,
                node,
                self.machine,
                partial(self._part, metric),
                self._gradients,
                narrow=policy.activations if is_wide and node.name in edges else None,
                gradient_at=divided.get(node.name),
                widens_halves=self.machine.widens_halves(layer, owner.layer),
            )
            tensors = (*node.outputs, *node.inputs)
            floating = next((t.dtype for t in tensors if t.dtype in FORMATS), None)
            site.fmt = None if floating is None else site.format_of(floating)
            if direction == "backward" and site.fmt is not None:
                self._gradients[site.fmt] = None
            sites.append(site)
        return sites

    @staticmethod
    def _layer(node: Node, layers: ScopeLayers) -> str:
        variable = node.marks.get("variable")
        return layers[node.layer] if variable is None else layer_of_variable(variable)

    def _enters_wide(self, node: Node) -> bool:
        """Whether data comes in here that each layer casts, as some are given back to binary32."""
        is_feed = node.marks.get("feed") or node.type.startswith("IteratorGetNext")
        return bool(is_feed) and self.machine.has_wide_data

    def _metric_of(self, node: Node) -> str:
        return str(node.marks.get("metric", self._metric))

    def _part(self, metric: str, graph: Any, direction: str = "") -> FramePlan:
        """The plan of a function that a node calls; what a metric calls is the metric's."""
        part = FramePlan(self.machine, program_of(graph), direction, metric, self._gradients)
        self._parts.append(part)
        return part

    def _bury(self) -> None:
        """Note after which step each value is no longer needed."""
        alive = {*self._results, *(i for i, v in enumerate(self._template) if v is not None)}
        for step in reversed(self._steps):
            touched = {*step.inputs, *step.outputs} - alive
            step.dead = tuple(touched)
            alive |= touched

    def begin_measuring(self) -> None:
        """What the program costs is measured when it runs first."""
        sites = [step.site for step in self._steps]
        outputs = None if self.is_training else self.program.outputs
        done = partial(self.machine.run.note_costs, self)
        self.measure = Measure(self.machine, sites, outputs, done)

    # Running --------------------------------------------------------------------------------

    def run(
        self, inputs: Sequence[Sequence[Any]], leaving: Leaving | None = None
    ) -> list[tuple[Any, ...]]:
        """The outputs of every replica.

        leaving    called with the number and the value of each output of the first replica, as
                   soon as it is computed.
        """
        frames = []
        for values in inputs:
            frame = self._template.copy()
            for slot, value in zip(self._inputs, values, strict=True):
                frame[slot] = value
            frames.append(frame)
        try:
            if leaving is not None:
                self._send(frames[0], [s for s in self._outputs if self._is_early(s)], leaving)
            if self.measure is not None:
                self._run_measured(frames, self.measure, leaving)
            elif len(frames) == 1 and leaving is None:
                self._run_alone(frames[0])
            else:
                self._run_together(frames, leaving)
        except FloatingPointTrap as trap:
            assert self._at is not None
            raise MachineError(self._at.site.node, trap) from None
        except OutOfMemoryError as error:
            raise tf.errors.ResourceExhaustedError(None, None, str(error)) from None
        except Exception as error:
            assert self._at is not None
            _locate(error, self._at.site.node)
            raise
        return [tuple([frame[slot] for slot in self._results]) for frame in frames]

    def _run_alone(self, frame: list[Any]) -> None:
        """One replica: its nodes run below their kernels where they can."""
        native = None if self._natives is None else self._natives.find(frame)
        if native is not None and native.is_ready:
            native.run(frame, self._begin)
        elif native is not None and native.is_due():
            native.note(frame, self._begin)
        else:
            self._run_by_kernels(frame)

    def _begin(self, step: PlannedStep) -> None:
        """A step of the one replica runs now."""
        self._at = step
        if step.place is not None:
            step.place(0)

    def _run_by_kernels(self, frame: list[Any]) -> None:
        """One replica: this loop is the executor's own time at each node."""
        for step in self._steps:
            self._at = step
            if step.place is not None:
                step.place(0)
            values = [frame[slot] for slot in step.inputs]
            result = step.run([values])[0] if step.is_joint else step.run(*values)
            outputs = step.outputs
            if len(outputs) == 1:
                frame[outputs[0]] = result
            else:
                for slot, value in zip(outputs, result, strict=True):
                    frame[slot] = value
            for slot in step.dead:
                frame[slot] = None

    def _run_together(self, frames: list[list[Any]], leaving: Leaving | None) -> None:
        for step in self._steps:
            self._run_step(step, frames)
            self._end_step(step, frames, leaving)

    def _end_step(
        self, step: FrameStep, frames: list[list[Any]], leaving: Leaving | None
    ) -> None:
        """Outputs leave, and what nobody reads any more is gone."""
        if leaving is not None:
            self._send(frames[0], step.outputs, leaving)
        for frame in frames:
            for slot in step.dead:
                frame[slot] = None

    def _send(self, frame: list[Any], slots: Iterable[int], leaving: Leaving) -> None:
        for slot in slots:
            for number in self._outputs.get(slot, ()):
                leaving(number, frame[slot])

    def _is_early(self, slot: int) -> bool:
        """Whether no step computes it: an input or a constant."""
        return all(slot not in step.outputs for step in self._steps)

    def _run_step(self, step: FrameStep, frames: list[list[Any]]) -> None:
        """A node of all replicas."""
        self._at = step
        if step.is_joint:
            if step.place is not None:
                step.place(0)
            results = step.run([[frame[slot] for slot in step.inputs] for frame in frames])
            for frame, result in zip(frames, results, strict=True):
                _store(frame, step, result)
            return
        for replica, frame in enumerate(frames):
            with self._placed(step, replica):
                _store(frame, step, step.run(*[frame[slot] for slot in step.inputs]))

    def _run_measured(
        self, frames: list[list[Any]], measure: Measure, leaving: Leaving | None
    ) -> None:
        """As `_run_together`, with the costs of an iteration that is measured."""
        is_wanted, first = measure.is_wanted, frames[0]
        if is_wanted:
            measure.note(self.program.inputs, [first[slot] for slot in self._inputs])
        for step in self._steps:
            if is_wanted:
                with measure.step(step.site, len(frames)):
                    self._run_step(step, frames)
                measure.note(step.site.node.outputs, [first[slot] for slot in step.outputs])
            else:
                self._run_step(step, frames)
            self._end_step(step, frames, leaving)
        if is_wanted:
            measure.end()
        measure.iterations += 1
        if measure.is_over:
            self.measure = None

    @contextmanager
    def _placed(self, step: FrameStep, replica: int) -> Iterator[None]:
        """The place of a step on a replica; updates draw the same bits on every replica."""
        if step.place is None:
            yield
            return
        step.place(replica)
        clock = self.machine.clock
        if step.site.direction != "optimizer" or self.machine.replicas == 1:
            yield
        elif replica == 0:
            step.start = clock.mark()
            yield
        else:
            assert step.start is not None
            with clock.replaying(step.start):
                yield


def _store(frame: list[Any], step: FrameStep, result: Any) -> None:
    if len(step.outputs) == 1:
        frame[step.outputs[0]] = result
    else:
        for slot, value in zip(step.outputs, result, strict=True):
            frame[slot] = value


def _check_scaled(machine: Machine, program: GraphProgram) -> None:
    """Refuse gradients that begin at 1 where the run has a loss scale.

    Raises    ValueError.
    """
    if machine.loss_scale != 1 and losses_of(program.graph) and not is_scaled(program):
        raise ValueError(
            f"scale={machine.loss_scale:g} is for gradients that are built inside of the run; make "
            "the tf.function, the model or the graph there"
        )


def plan_of(machine: Machine, graph: Any, trained: Collection[int] = ()) -> FramePlan:
    """The plan of a graph on a machine, made once; an evaluation where it trains nothing.

    trained    positions of inputs that are variables which are trained.
    """
    plan: FramePlan | None = machine.plans.get(graph)
    if plan is None:
        trains = has_gradient(graph) or not written_inputs(graph).isdisjoint(trained)
        direction = "" if trains else EVALUATION
        plan = machine.plans[graph] = FramePlan(machine, program_of(graph), direction)
        machine.compiled += 1
        if not plan.counts:
            plan.begin_measuring()
    elif machine.on_chip is not None and machine.on_chip() is not plan:
        machine.switches += 1
    machine.on_chip = ref(plan)
    return plan


# Nodes ------------------------------------------------------------------------------------------


def check_nodes(program: GraphProgram) -> None:
    """Refuse a program with a node that has no kernel, also in functions that it calls."""
    for node in program.nodes:
        _entry(node)
        for graph, _ in called_graphs(node):
            check_nodes(program_of(graph))


def _kernel(site: NodeSite, entry: KernelEntry | None) -> Run:
    """The kernel of a node; an error of its builder tells the user's line."""
    try:
        return host_kernel(site) if entry is None else _obey_marks(site, entry)
    except UnsupportedNodeError:
        raise
    except NotImplementedError as error:
        line = user_line(site.node.op)
        raise UnsupportedNodeError(f"{error}; it was built at {line}") from None
    except ValueError as error:
        _locate(error, site.node)
        raise


def _entry(node: Node) -> KernelEntry | None:
    """The entry of a node; None: no floating point, for the host's kernels."""
    name = node.marks.get("kernel", node.type)
    entry = TABLE.get(name)
    if entry is not None and (entry.is_any or node.has_floats):
        return entry
    kinds = {t.dtype.name for t in (*node.inputs, *node.outputs)}
    if node.has_floats or kinds & {"resource", "variant", "float64", "complex64", "complex128"}:
        raise UnsupportedNodeError(
            f"node {node.name} is a {node.type} on {', '.join(sorted(kinds))}, which the machine "
            f"has no kernel for; {_instead(node)}it was built at {user_line(node.op)}"
        )
    return None


#: What a program can do instead of a node, by the beginning of its type.
_INSTEAD = {
    "LookupTable": "tables are the host's: look up in dataset.map, or keep the values in a tensor "
                   "and use tf.gather",
}


def _instead(node: Node) -> str:
    """A sentence for a node that has another way, else nothing."""
    ways = (way for start, way in _INSTEAD.items() if node.type.startswith(start))
    return "".join(f"{way}; " for way in ways)


def _obey_marks(site: NodeSite, entry: KernelEntry) -> Run:
    """The kernel of a node under the rounding that its scope asks for."""
    run, stochastic = _cast_operands(site, entry), site.node.marks.get("sr")
    if stochastic is None and site.machine.identical_only and site.direction != "optimizer":
        stochastic = False
    if stochastic is None or entry.is_joint:
        return run
    rounding = site.device.rounding

    def marked_run(*values: Any) -> Any:
        with rounding(bool(stochastic)):
            return run(*values)

    return marked_run


def _cast_operands(site: NodeSite, entry: KernelEntry) -> Run:
    """The kernel of a node; what computes gets its float32 operands in one format."""
    run = _altering(site, _narrowing(site, entry.build(site)), entry)
    positions = [i for i, t in enumerate(site.node.inputs) if t.dtype in FORMATS]
    is_plain = site.machine.is_plain and not site.machine.names_layers
    if is_plain or entry.keeps or entry.is_joint or not positions:
        return run
    cast, is_update, fmt_of_node = site.device.cast, site.direction == "optimizer", site.fmt
    gradient_at = site.gradient_at

    def on_operands(*values: Any) -> Any:
        operands = list(values)
        if gradient_at is not None:  # rounded once, into the format of the gradient
            wide = [cast(x, BINARY32) if isinstance(x, Array) else x for x in values]
            return cast(run(*wide), values[gradient_at].format)
        fmt: Any = _widest([operands[i] for i in positions]) if is_update else fmt_of_node
        for i in positions:
            if isinstance(operands[i], Array):
                operands[i] = cast(operands[i], fmt)
        return run(*operands)

    return on_operands


def _narrowing(site: NodeSite, run: Run) -> Run:
    """The kernel of a gradient that leaves binary32 for the format of a layer."""
    narrow, cast = site.narrow, site.device.cast
    if narrow is None or narrow == BINARY32:
        return run

    def narrowed_run(*values: Any) -> Any:
        results = run(*values)
        if isinstance(results, tuple):
            return tuple(cast(x, narrow) if isinstance(x, Array) else x for x in results)
        return cast(results, narrow) if isinstance(results, Array) else results

    return narrowed_run


def _altering(site: NodeSite, run: Run, entry: KernelEntry) -> Run:
    """The kernel of a node whose results a diagnosis moves, or rounds to some of their bits."""
    alter = site.machine.altering(site.layer, site.direction)
    if alter is None or entry.keeps or entry.is_joint:
        return run

    def altered(x: Any) -> Any:
        return x.like(alter(x.carrier, x.format)) if isinstance(x, Array) else x

    def altered_run(*values: Any) -> Any:
        results = run(*values)
        return tuple(map(altered, results)) if isinstance(results, tuple) else altered(results)

    return altered_run


def _widest(values: Sequence[Array]) -> Format:
    (first, *others) = {value.format for value in values if isinstance(value, Array)}
    return BINARY32 if others else first


def _naming(site: NodeSite) -> Callable[[int], None] | None:
    """A function that names the layer of the next operations; a joint kernel places itself."""
    device, name = site.device, site.name
    if not site.run.is_watched:
        return None

    def place(replica: int) -> None:
        device.tensor = name

    return place


def _placing(site: NodeSite, entry: KernelEntry | None) -> Callable[[int], None] | None:
    """A function that sets the place of the next operations; None where nothing asks for it."""
    machine, device, node = site.machine, site.device, site.node
    draws, control = entry is not None and entry.draws, device.control
    # Of random bits, and of scales by the step; watchers are told of names.
    is_told = site.policy.recipe is not None or site.run.is_watched
    may_trap = control.inv or control.div0 or control.oflo
    rounds = draws or (entry is not None and entry.rounding != "none")
    if not (draws or control.esr or node.marks.get("sr") or is_told):
        return None
    if not (rounds or is_told or may_trap):
        return None
    name, node_name, direction = site.name, node.name, site.direction

    def place(replica: int) -> None:
        number = machine.first_replica + replica
        machine.clock.place = machine.place(node_name, direction, number)
        device.tensor = name

    return place


def _locate(error: BaseException, node: Node) -> None:
    """Say once where in the user's program an error arose."""
    if not getattr(error, "__notes__", None) and not isinstance(error, MachineError):
        error.add_note(f"in node {node.name} ({node.type}), built at {user_line(node.op)}")
