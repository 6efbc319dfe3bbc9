"""Launches: a traced program goes to the machine as one call from the host.

TensorFlow 2: `launching_functions` sends functions that are called inside to the machine instead of
TensorFlow's runtime. TensorFlow 1: `launch_node` is one node of the session's graph; feeds and
variables go in, outputs and the variables that the program writes come out and are assigned.

With the choice `reference` TensorFlow executes the same traced program.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, partial
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import atomic_function, concrete_function
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_resource_variable_ops, handle_data_util

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format, find_number_format
from fpsim.state.processor import usual_arithmetic
from ipu.feed.counters import launching
from ipu.frontends.tensorflow.engine.current import current
from ipu.frontends.tensorflow.engine.interpret import Leaving, check_nodes, plan_of
from ipu.frontends.tensorflow.engine.machine import EVALUATION, Machine
from ipu.frontends.tensorflow.engine.program import program_of
from ipu.frontends.tensorflow.engine.replica_set import dealt
from ipu.frontends.tensorflow.engine.replicas import private_values
from ipu.frontends.tensorflow.engine.resources import IteratorHandle, Variable
from ipu.frontends.tensorflow.engine.statistics import policy_of_metric, statistics_of
from ipu.frontends.tensorflow.engine.streaming import Outgoing, departures, streamed
from ipu.frontends.tensorflow.engine.subnormals import keeping_subnormals
from ipu.frontends.tensorflow.engine.trace import tracing
from ipu.frontends.tensorflow.engine.turns import note_launch
from ipu.frontends.tensorflow.engine.values import FORMATS, enter, is_floating, leave
from ipu.frontends.tensorflow.engine.writes import written_inputs
from ipu.frontends.tensorflow.reports.layers import layer_of_variable
from ipu.frontends.tensorflow.reports.observing import note_weights, watch
from ipu.frontends.tensorflow.settings import system
from ipu.plan.loop import Spent
from ipu.run.account import fit
from ipu.run.noise import ResultNoise, moved_up

__all__ = [
    "UNCONFIGURED", "execute", "failure_of", "failures", "launch_node", "launching_functions",
    "nudged", "perturbed", "programs", "reporting",
]

Concrete = concrete_function.ConcreteFunction

UNCONFIGURED = (
    "the program launches without configure_ipu_system(), so it has no IPU; set auto_select_ipus "
    "of an IPUConfig and call its configure_ipu_system() first, or give it one IPU with all "
    "control bits off by fpsim.tf.machine(unconfigured=True), fpsim tf --unconfigured"
)

#: Held from the first variable that a launch reads to the last one that it writes: a machine runs
#: one program at a time, whichever threads ask for it.
_one_launch = threading.RLock()

#: Launches, and nodes that launch, of all machines of this process.
_programs = 0


def programs() -> int:
    """How often a program was launched, or built for a session, in this process."""
    return _programs


def _count_program() -> None:
    global _programs
    _programs += 1


@usual_arithmetic
def execute(
    machine: Machine, graph: Any, values: Sequence[Sequence[Any]], trained: Sequence[int],
    leaving: Leaving | None = None,
) -> list[tuple[Any, ...]]:
    """Run a graph on the machine: one launch. Values of its inputs, and outputs, by replica.

    trained    positions of inputs that are variables which are trained. A launch that writes none
               of them and has no gradient is an evaluation.
    leaving    called with the number and the value of each output of the first replica, as soon as
               it is computed.

    Raises    RuntimeError where the program has other processes than the strategy, and where it
              has configured no IPU.
    """
    count = max(machine.processes, dealt.processes)
    if count not in (1, machine.replica_set.size):
        raise RuntimeError(
            f"the program's replicas are dealt to {count} processes, and this launch is of "
            f"{machine.replica_set.size}; launch it by fit or run of a PopDistStrategy under fpsim "
            "poprun; without one, leave process_count of IPUConfig out"
        )
    if not (system.is_configured() or machine.choices.unconfigured):
        raise RuntimeError(UNCONFIGURED)
    plan = plan_of(machine, graph, trained)
    machine.launches += 1
    _count_program()
    evaluating = machine.evaluating() if plan.direction == EVALUATION else nullcontext()
    with launching() as launch, evaluating:
        machine.accumulation = plan.accumulation
        results = plan.run(values, leaving)
        if not plan.counts:
            machine.advance()
            launch.counters.iterations += 1
    return results


def _entered(machine: Machine, tensor: Any, value: Any, metric: str | None) -> Array | NDArray[Any]:
    """A value of the host as the program takes it; a loss scale (`metric` is "") as it is."""
    fmt = _format(machine, tensor.dtype) if metric is None else FORMATS.get(tensor.dtype)
    return np.asarray(value) if fmt is None else enter(machine.device, value, fmt)


def _format(machine: Machine, dtype: Any) -> Format | None:
    fmt = FORMATS.get(dtype)
    is_wide = fmt is not None and dtype.size == 4
    if not is_wide or machine.is_plain:
        return fmt
    # Where places are given back to binary32, each casts what it reads.
    return BINARY32 if machine.has_wide_data else machine.policy.default.activations


def _variable(
    machine: Machine, name: str, dtype: Any, read: Callable[[], Any], metric: str | None, *,
    is_constant: bool, is_state: bool,
) -> Variable:
    """A variable of the host.

    metric         that it belongs to.
    is_constant    the program neither trains nor writes it, such as a learning rate.
    is_state       an optimiser keeps it beside a parameter, or it is a number that is only read.
    """
    fmt = FORMATS.get(dtype)
    if fmt is not None and dtype.size == 4 and not machine.is_plain:
        fmt = (
            machine.format_of_variable(layer_of_variable(name), is_state=is_state)
            if metric is None else policy_of_metric(machine.policy, metric).param
        )
    machine.variables.add(name)
    if is_constant and fmt is not None:
        read = partial(_noted, machine, name, fmt, read)
    return Variable(name, dtype, fmt, read, machine.device)


def _noted(machine: Machine, name: str, fmt: Format, read: Callable[[], Any]) -> Any:
    """The value of a variable; a number that its format does not hold is told."""
    host = read()
    if not np.ndim(host) and machine.run.is_counting:
        value = float(host)
        change = fit(value, float(enter(machine.device, host, fmt).carrier), fmt)
        if change and change != "one":
            layer = layer_of_variable(name)
            machine.account.constant(layer, "optimizer", fmt, value, change, f"variable {name}")
    return host


@contextmanager
def _watching(machine: Machine, trained: Sequence[Variable]) -> Iterator[None]:
    """A machine that counts is told of the updates and weights of variables that are trained."""
    for variable in trained:
        for begin in _begins:
            begin(machine, variable)
        watch(machine, variable)
    yield
    for variable in trained:
        for move in _moves:
            move(machine, variable)
        note_weights(machine, variable)


#: Called with each trained variable before a launch, and after it.
_begins: list[Callable[[Machine, Variable], None]] = []
_moves: list[Callable[[Machine, Variable], None]] = []


def perturbed(fmt: str, seed: int) -> AbstractContextManager[None]:
    """Inside, binary32 variables move by a unit in the last place before they are first used.

    fmt    the format whose units these are; each number goes up or down at random.

    Raises    ValueError for a name that is no format of numbers.
    """
    noise = ResultNoise(find_number_format(fmt), seed)
    return _moving(_begins, lambda variable: True, lambda values: noise(values, BINARY32))


def nudged() -> AbstractContextManager[None]:
    """Inside, the first launch that trains a variable moves it on by a unit in the last place.

    Of binary32. So a run differs from itself by what no comparison can tell from rounding.
    """
    return _moving(_moves, lambda variable: variable.is_written, moved_up)


@contextmanager
def _moving(
    hooks: list[Callable[[Machine, Variable], None]], is_due: Callable[[Variable], bool],
    moved: Callable[[Any], Any],
) -> Iterator[None]:
    """Inside, a hook moves each variable of binary32 once, when it is due."""
    done: set[str] = set()

    def move(machine: Machine, variable: Variable) -> None:
        if variable.fmt == BINARY32 and variable.name not in done and is_due(variable):
            done.add(variable.name)
            values = moved(variable.value.carrier)
            variable.value = machine.device.context(BINARY32).wrap(values)

    hooks.append(move)
    try:
        yield
    finally:
        hooks.remove(move)


# TensorFlow 2 -------------------------------------------------------------------------------------

_state = threading.local()
_native_call = Concrete._call_flat


@contextmanager
def launching_functions() -> Iterator[None]:
    """Functions of TensorFlow that are called inside, in this thread, run on the machine."""
    before = getattr(_state, "is_on", False)
    _state.is_on = True
    Concrete._call_flat = _call_flat
    try:
        with tracing(current().loss_scale):
            yield
    finally:
        _state.is_on = before


@contextmanager
def _natively() -> Iterator[None]:
    before = getattr(_state, "is_on", False)
    _state.is_on = False
    try:
        yield
    finally:
        _state.is_on = before


def _call_flat(function: Any, tensor_inputs: Sequence[Any], captured_inputs: Sequence[Any]) -> Any:
    """What a concrete function does with its flat inputs: a launch, where launches are on."""
    if not getattr(_state, "is_on", False) or not context.executing_eagerly():
        return _native_call(function, tensor_inputs, captured_inputs)
    with _natively():
        machine = current()
        graph, flat = function.graph, [*tensor_inputs, *captured_inputs]
        if machine.choices.reference:
            _check_reference()
            _count_program()
            plain = Concrete.from_func_graph(graph, function.function_type, {})
            return _native_call(plain, tensor_inputs, captured_inputs)
        with _one_launch:
            outputs = _launch(machine, graph, flat)
        return function.function_type.pack_output(outputs)


@usual_arithmetic
def _launch(machine: Machine, graph: Any, flat: Sequence[Any]) -> list[Any]:
    names = {id(v.handle): v.name.split(":")[0] for v in graph.variables}
    metrics, written = statistics_of(graph), written_inputs(graph)
    trained = {id(v.handle): len(v.shape) for v in graph.variables if _is_trained(v)}
    # Inputs are in the order of their first use; graph.variables are in none.
    machine.order((names[id(x)], trained[id(x)]) for x in flat if id(x) in trained)
    parameters = tuple([names[handle] for handle in trained])
    replicas = [
        [
            _argument(
                machine, outer, names.get(id(outer)), metrics.get(i),
                is_constant=i not in written and id(outer) not in trained,
                is_state=_is_state(names.get(id(outer), ""), parameters),
            )
            for i, outer in enumerate(flat)
        ]
        for _ in range(machine.replicas)
    ]
    updated = [v for outer, v in zip(flat, replicas[0], strict=True) if id(outer) in trained]
    with _watching(machine, updated), private_values(machine, flat, replicas):
        at = [i for i, outer in enumerate(flat) if id(outer) in trained]
        results = execute(machine, graph, replicas, at)
    for outer, value in zip(flat, replicas[0], strict=True):
        if isinstance(value, Variable) and value.is_written:
            host = tf.constant(value.host(), value.dtype)
            gen_resource_variable_ops.assign_variable_op(outer, host)
            if value.fmt is not None:
                machine.host_values.keep(outer, host, value.value)
    return [
        tf.constant(leave(value, tensor.dtype), tensor.dtype)
        for value, tensor in zip(results[0], graph.outputs, strict=True)
    ]


@lru_cache(maxsize=1 << 14)
def _is_state(name: str, parameters: tuple[str, ...]) -> bool:
    """Whether a variable is an optimiser's: its name has that of a parameter in it.

    >>> _is_state("Adam/net/w/m", ("net/w",)), _is_state("net/w", ("net/w",))
    (True, False)
    """
    return any(f"/{parameter}/" in f"/{name}/" for parameter in parameters if parameter != name)


def _argument(
    machine: Machine, outer: Any, name: str | None, metric: str | None, *, is_constant: bool,
    is_state: bool,
) -> Any:
    if outer.dtype != tf.resource:
        return _entered(machine, outer, outer.numpy(), metric)
    data = getattr(outer, "_handle_data", None)
    if data is not None and data.is_set and data.shape_and_type:
        dtype = tf.as_dtype(data.shape_and_type[0].dtype)
        read = _reader(machine, outer, dtype)
        is_number = is_constant and not data.shape_and_type[0].shape.dim
        variable = _variable(machine, name or "variable", dtype, read, metric,
                             is_constant=is_constant, is_state=is_state or is_number)
        variable.key = id(outer)
        return variable
    return IteratorHandle(outer)


def _reader(machine: Machine, handle: Any, dtype: Any) -> Callable[[], Any]:
    """What gives the host's numbers of a variable, or what the machine had of them before.

    What may be known is read at once: TensorFlow's kernel takes a tenth of the time where it runs
    for one variable after the other.
    """
    is_looked_at = machine.run.is_watched or machine.shadows is not None
    if is_looked_at or not machine.host_values.may_recall(handle):
        return partial(_read, handle, dtype)
    tensor = gen_resource_variable_ops.read_variable_op(handle, dtype)
    value = machine.host_values.recall(handle, tensor)
    return tensor.numpy if value is None else lambda: value


def _read(handle: Any, dtype: Any) -> Any:
    return gen_resource_variable_ops.read_variable_op(handle, dtype).numpy()


# TensorFlow 1 -------------------------------------------------------------------------------------


def launch_node(graph: Any, flat: Sequence[Any], *, streams: bool = False) -> list[Any]:
    """A node of the default graph that launches a traced graph.

    The result is the outputs of the graph, of which there is one at least.

    flat       outer tensors of the graph's inputs; handles of variables among them.
    streams    outputs behind the first are there as soon as they are computed.
    """
    _count_program()
    traced_for = current()
    if traced_for.choices.reference:
        return _native_node(graph, flat)
    program = program_of(graph)
    check_nodes(program)
    launch = SessionLaunch(graph, flat, traced_for)
    kinds = [t.dtype for t in graph.outputs] + [launch.outer[i].dtype for i in launch.written]
    note_launch(ops.get_default_graph(), [flat[i] for i in launch.written])
    count = len(graph.outputs)
    if streams and count > 1:
        order = departures([node.name for node in program.nodes], graph.outputs)
        results = streamed(launch.run, launch.outgoing, launch.outer, kinds, order)
    else:
        order = []
        results = tf.numpy_function(launch.run, launch.outer, kinds)
        results = [results] if tf.is_tensor(results) else list(results)
    assigned = [
        gen_resource_variable_ops.assign_variable_op(flat[i], value)
        for i, value in zip(launch.written, results[count:], strict=True)
    ]
    for result, inner in zip(results, graph.outputs, strict=False):
        result.set_shape(inner.shape)
    with tf.control_dependencies(assigned):
        return [
            result if i in order else tf.identity(result)
            for i, result in enumerate(results[:count])
        ]


class SessionLaunch:
    """A traced graph of a session: what goes in, what it writes, and how it runs.

    outer      what goes in, values of variables for their handles.
    written    positions of the variables that it writes.
    """

    def __init__(self, graph: Any, flat: Sequence[Any], traced_for: Machine) -> None:
        self._graph, self._traced_for = graph, traced_for
        self.outer = [_value_of(tensor) for tensor in flat]
        self.written = sorted(written_inputs(graph))
        self._names = [tensor.op.name for tensor in flat]
        self._handles = [tensor.dtype == tf.resource for tensor in flat]
        self._metrics = statistics_of(graph)
        self._trained = tuple([
            v.handle.op.name for v in tf.compat.v1.trainable_variables() if _is_trained(v)
        ])

    def outgoing(self) -> Outgoing:
        """What a launch's results leave through; the report tells of the latest."""
        machine = _machine_of(self._traced_for)
        device = machine.device
        names = {i: tensor.op.name for i, tensor in enumerate(self._graph.outputs)}
        machine.outgoing = Outgoing(lambda: Spent.by(device).cycles(device.target), names)
        return machine.outgoing

    @usual_arithmetic
    def run(self, *values: Any, outgoing: Outgoing | None = None) -> list[Any]:
        """One launch: outputs, then new values of the variables that it writes.

        outgoing    gets outputs behind the first as they are computed.
        """
        with reporting(), _one_launch, keeping_subnormals():
            machine, graph = _machine_of(self._traced_for), self._graph
            inputs = zip(self._names, values, strict=True)
            machine.order((name, np.ndim(x)) for name, x in inputs if name in self._trained)
            replicas = [self._entered(machine, values) for _ in range(machine.replicas)]
            first = replicas[0]
            names = list(zip(first, self._names, strict=True))
            with _watching(machine, [v for v, name in names if name in self._trained]):
                at = [i for i, name in enumerate(self._names) if name in self._trained]
                leaving = None if outgoing is None else partial(self._leave, outgoing)
                (results, *_) = execute(machine, graph, replicas, at, leaving)
            changed = [first[i].host() for i in self.written]
            out = [leave(v, t.dtype) for v, t in zip(results, graph.outputs, strict=True)]
            return [*out, *changed]

    def _leave(self, outgoing: Outgoing, number: int, value: Any) -> None:
        if number:
            outgoing.put(number, leave(value, self._graph.outputs[number].dtype))

    def _entered(self, machine: Machine, values: Sequence[Any]) -> list[Any]:
        """Inputs of one replica."""
        rows = zip(self._names, self.outer, self._handles, values, strict=True)
        return [
            self._variable(machine, i, name, kind, value) if is_handle
            else _entered(machine, kind, value, self._metrics.get(i))
            for i, (name, kind, is_handle, value) in enumerate(rows)
        ]

    def _variable(self, machine: Machine, i: int, name: str, kind: Any, value: Any) -> Variable:
        is_constant = i not in self.written and name not in self._trained
        return _variable(
            machine, name, kind.dtype, partial(np.asarray, value), self._metrics.get(i),
            is_constant=is_constant,
            is_state=_is_state(name, self._trained) or (is_constant and not np.ndim(value)),
        )


def _machine_of(traced_for: Machine) -> Machine:
    """The machine as it is now: a program may be configured after it was traced."""
    machine = current()
    if machine is not traced_for and machine.taken < traced_for.taken:
        machine.take(traced_for.taken)
    return machine


def _is_trained(variable: Any) -> bool:
    """Whether it is one of those that gradients may reach; counters are trainable by default."""
    is_number = is_floating(variable.dtype.base_dtype)
    return hasattr(variable, "handle") and is_number and bool(variable.trainable)


def _native_node(graph: Any, flat: Sequence[Any]) -> list[Any]:
    """The same program as a function that TensorFlow executes."""
    function = atomic_function.from_func_graph(f"{graph.name}_{ops.uid()}", graph, {})
    with tf.control_dependencies([tf.numpy_function(_check_reference, [], [])]):
        return list(function.call_flat(*flat))


def _check_reference() -> None:
    """Refuse replicas: TensorFlow executes one copy of a program."""
    with reporting():
        machine = current()
        if machine.replicas > 1:
            raise NotImplementedError(
                f"the reference runs one replica, and the program has {machine.replicas}; set "
                f"auto_select_ipus = {machine.n_ipus // machine.replicas} for it"
            )


def _value_of(tensor: Any) -> Any:
    """What goes in: the value of a variable for its handle."""
    if tensor.dtype != tf.resource:
        return tensor
    data = handle_data_util.get_resource_handle_data(tensor)
    if data is None or not data.is_set or not data.shape_and_type:
        raise NotImplementedError(
            f"{tensor.op.name} is a handle of no variable; feed data through an IPUInfeedQueue"
        )
    dtype = tf.as_dtype(data.shape_and_type[0].dtype)
    return gen_resource_variable_ops.read_variable_op(tensor, dtype)


#: The latest errors of nodes, for the thread whose session ends with one of them.
failures: deque[BaseException] = deque(maxlen=8)


def failure_of(message: str) -> BaseException | None:
    """The error of a node that TensorFlow's runtime has made this message of; the latest one."""
    for error in reversed(failures):
        if str(error) in message:
            return error
    return None


@contextmanager
def reporting() -> Iterator[None]:
    """Keep an error of a node: TensorFlow's runtime turns it into a text of its own."""
    try:
        yield
    except BaseException as error:
        failures.append(error)
        raise
