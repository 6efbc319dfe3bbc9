"""What a program costs, from its own graph: figures of the stages of a plan, for every loop's body.

Marks of nodes tell the stage and the pipeline; a node without them belongs where its inputs come
from. Edges tell what crosses stages and what waits for the backward pass. The first iteration gives
the sizes, and cycles by the device's declared model; the iteration that updates gives those of the
update. A program without a pipeline has a plan of one stage.

Source    docs/semantics.md §9 (plans are accounts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from fpsim.array import Array
from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.frontends.tensorflow.engine.resources import Variable
from ipu.frontends.tensorflow.kernels.table import TABLE, NodeSite
from ipu.frontends.tensorflow.reports.layers import OPTIMIZER
from ipu.frontends.tensorflow.settings import system
from ipu.plan.explain import check_fit
from ipu.plan.loop import Key, Spent
from ipu.plan.memory import Holding, StageFigures
from ipu.plan.metering import Costs, put_spent, stage_figures
from ipu.plan.plan import Plan
from ipu.plan.schedule import Phase

__all__ = ["Measure", "Request", "requested", "requests"]

#: A tensor of a graph: its node's name and the number of the output.
TensorKey = tuple[str, int]

_PHASES = {
    "backward": Phase.BACKWARD, "optimizer": Phase.UPDATE, "update": Phase.UPDATE,
}
#: Nodes that give the values of variables.
_READING = ("ReadVariableOp", "ResourceGather")


class Request(NamedTuple):
    """A plan as a program asks for it, and whether the optimiser's state is sharded."""

    plan: Plan
    shard_state: bool = False


#: Of all pipelines that were built, the latest last.
requests: list[Request] = []


def requested(request: Request) -> int:
    """The number by which nodes are marked as those of this pipeline."""
    requests.append(request)
    return len(requests) - 1


def _program(*arguments: Any) -> Any:
    raise AssertionError("the stages of a program of TensorFlow are marks of its nodes")


def _request_of(sites: Sequence[NodeSite]) -> Request:
    """What the nodes of a body are marked with; without a pipeline a plan of one stage."""
    marks: dict[str, Any] = {}
    for site in sites:
        marks = site.node.marks | marks
    if "pipeline" in marks:
        return requests[int(marks["pipeline"])]
    trains = any(site.direction == "backward" for site in sites)
    count = int(marks.get("mini_batches", 1))
    offload = {"state"} if trains and marks.get("offload_state", count > 1) else set()
    configured = system.current() if system.is_configured() else None
    plan = Plan(
        [_program], count=count, training=trains, offload=offload,
        io_tiles=0 if configured is None else configured.overlapping_tiles, check_memory=False,
    )
    return Request(plan, bool(marks.get("shard_state")))


def _stage(site: NodeSite, before: Iterable[Key], last: int) -> int:
    """The stage of a node without a mark: where its inputs come from."""
    rows = list(before)
    if site.direction == "backward":
        backward = [stage for phase, stage, _ in rows if phase is Phase.BACKWARD]
        return min(backward, default=max((stage for _, stage, _ in rows), default=last))
    return max((stage for _, stage, _ in rows), default=0)


class Measure:
    """The body of a loop, or a program without one, until its costs are known.

    sites      its nodes, in order.
    outputs    its results, where these go to the host; none of a loop's body.
    done       called with the costs after the first iteration, and again after the first update.
    """

    def __init__(
        self, machine: Machine, sites: Sequence[NodeSite], outputs: Sequence[Any] | None,
        done: Callable[[Costs], None],
    ) -> None:
        self._machine, self._sites, self._done = machine, sites, done
        self._outputs = outputs
        self.plan = self._plan_of(_request_of(sites))
        self._keys: dict[str, Key] = {}
        for site in sites:
            self._keys[site.node.name] = self._key(site)
        #: Iterations so far.
        self.iterations = 0
        self._spent: dict[Key, Spent] = {}
        self._values: dict[TensorKey, Any] = {}
        #: Outputs of nodes whose values are looked at.
        self._wanted = self._find_wanted()
        #: Variables by the tensor of their handle.
        self._variables: dict[TensorKey, Variable] = {}

    def _plan_of(self, request: Request) -> Plan:
        replicas = self._machine.replicas * max(self._machine.replica_set.size, 1)
        on_host = {"weights", "state"} if self._machine.variables_on_host else set()
        return replace(
            request.plan, replicas=replicas, offload=request.plan.offloaded | on_host,
            shard_state=request.shard_state and replicas > 1,
            check_memory=self._machine.run.options.check_memory,
        )

    def _key(self, site: NodeSite) -> Key:
        marks, last = site.node.marks, self.plan.n_stages - 1
        before = [
            self._keys[x.op.name] for x in site.node.inputs
            if x.op.name in self._keys and x.dtype != tf.resource
        ]
        stage = marks.get("stage")
        stage = _stage(site, before, last) if stage is None else min(int(stage), last)
        branch = int(marks.get("branch", 0)) if len(self.plan.places[stage]) > 1 else 0
        return _PHASES.get(marks.get("phase", site.direction), Phase.FORWARD), stage, branch

    # Running --------------------------------------------------------------------------------

    @property
    def is_first(self) -> bool:
        return self.iterations == 0

    @property
    def is_wanted(self) -> bool:
        """Whether the iteration that begins is measured: the first, and the first that updates."""
        updates = self.plan.training and self.iterations + 1 == self._mini_batches
        return self.is_first or updates

    @property
    def is_over(self) -> bool:
        """Whether the costs are known."""
        return self.iterations >= (self._mini_batches if self.plan.training else 1)

    @property
    def _mini_batches(self) -> int:
        return max(int(site.node.marks.get("accumulation", 1)) for site in self._sites)

    @contextmanager
    def step(self, site: NodeSite, replicas: int) -> Iterator[None]:
        """A block around a node that runs on so many replicas."""
        key = self._keys[site.node.name]
        if not self.is_first and key[0] is not Phase.UPDATE:
            yield
            return
        before = Spent.start(self._machine.device)
        yield
        more = Spent.by(self._machine.device) - before
        of_replica = Spent(
            more.products // replicas, more.vector // replicas, more.temporary,
            more.operands // replicas, more.saving // replicas,
        )
        key = (Phase.UPDATE, 0, 0) if key[0] is Phase.UPDATE else key
        self._spent[key] = self._spent.get(key, Spent()).plus(of_replica)

    def note(self, tensors: Sequence[Any], values: Sequence[Any]) -> None:
        """Tensors of the first replica have these values."""
        for tensor, value in zip(tensors, values, strict=True):
            key = tensor.op.name, tensor.value_index
            if isinstance(value, Variable):
                self._variables[key] = value
            elif key in self._wanted and self.is_first:
                self._values[key] = value

    def end(self) -> None:
        """An iteration that was measured is over.

        Raises    OutOfMemoryError for a program that an IPU cannot hold.
        """
        if self.is_first:
            self._rows = self._measured()
            self._holdings = self._held()
            check_fit(self.plan, self._figures(), self._machine.device.target)
        self._done(Costs(self.plan, self._figures()))
        self._values.clear()

    def _figures(self) -> tuple[StageFigures, ...]:
        target, update = self._machine.device.target, 0
        rows = {key: dict(row) for key, row in self._rows.items()}
        for (phase, stage, branch), spent in self._spent.items():
            if phase is Phase.UPDATE:
                update = spent.cycles(target)
            else:
                put_spent(rows[stage, branch], phase, spent, target)
        return stage_figures(self.plan, rows, self._holdings, update)

    # Bytes ----------------------------------------------------------------------------------

    def _edges(self) -> Iterator[tuple[NodeSite, Any, Key | None]]:
        """Every node with each of its inputs, and where that was computed."""
        for site in self._sites:
            for tensor in site.node.inputs:
                yield site, tensor, self._keys.get(tensor.op.name)

    def _find_wanted(self) -> set[TensorKey]:
        wanted = {
            (x.op.name, x.value_index)
            for site, x, producer in self._edges()
            if x.dtype not in (tf.resource, tf.variant)
            and (producer is None or producer != self._keys[site.node.name] or _is_end(site))
        }
        wanted |= {(x.op.name, x.value_index) for x in self._outputs or ()}
        for site in self._sites:
            if _is_feed(site) or _kernel(site) == "Accumulate" or site.node.type in _READING:
                wanted |= {(x.op.name, x.value_index) for x in site.node.outputs}
        return wanted

    def _bytes(self, tensors: Iterable[TensorKey], without: Iterable[TensorKey] = ()) -> int:
        """Of tensors, each memory once."""
        skip = {place for key in without for place, _ in memories(self._values.get(key))}
        sizes: dict[int, int] = {}
        for key in tensors:
            for place, size in memories(self._values.get(key)):
                sizes[place] = max(size, sizes.get(place, 0))
        return sum(size for place, size in sizes.items() if place not in skip)

    def _measured(self) -> dict[tuple[int, int], dict[str, Any]]:
        """Bytes of the stages' activations."""
        crossing, saved, fed, sent = self._flows()
        read = {key for keys in self._reads().values() for key in keys}
        stored = _stored_nodes(self._sites)
        rows: dict[tuple[int, int], dict[str, Any]] = {}
        for entry in self.plan.entries:
            stage, here = entry.stage, (entry.stage, entry.branch)
            entering = crossing.get(stage, set()) | (fed if not stage else set())
            for later in range(stage + 1, self.plan.n_stages):
                entering |= {t for t in crossing.get(later, ()) if self._stage_of(t) < stage}
            leaving = {
                t for later in range(stage + 1, self.plan.n_stages)
                for t in crossing.get(later, ()) if self._stage_of(t) <= stage
            }
            row = rows[here] = {"input_bytes": self._bytes(entering)}
            row["output_bytes"] = 0 if entry.branch else self._bytes(leaving)
            if self.plan.training:
                needed = saved.get(here, set()) - read - entering
                row["saved_bytes"] = row["input_bytes"] + self._bytes(needed, {*read, *entering})
                masks = {tensor for tensor in needed if tensor[0] in stored}
                row["checkpoint_bytes"] = self._bytes(masks, {*read, *entering})
        rows[0, 0]["infeed_bytes"] = self._bytes(fed)
        last = self.plan.entries[-1]
        rows[last.stage, last.branch]["outfeed_bytes"] = self._bytes(sent)
        return rows

    def _stage_of(self, tensor: TensorKey) -> int:
        """The stage that computed a tensor; what comes from outside comes in at the first."""
        return self._keys.get(tensor[0], (Phase.FORWARD, 0, 0))[1]

    def _flows(self) -> tuple[dict[int, set[TensorKey]], dict[tuple[int, int], set[TensorKey]],
                              set[TensorKey], set[TensorKey]]:
        """What crosses into each stage, what each saves, what the host feeds and what is sent."""
        crossing: dict[int, set[TensorKey]] = {}
        saved: dict[tuple[int, int], set[TensorKey]] = {}
        fed = {
            (x.op.name, x.value_index)
            for site in self._sites if _is_feed(site) for x in site.node.outputs
        }
        sent = {(x.op.name, x.value_index) for x in self._outputs or () if x.dtype != tf.resource}
        for site, x, producer in self._edges():
            if x.dtype in (tf.resource, tf.variant):
                continue
            tensor, (phase, stage, branch) = (x.op.name, x.value_index), self._keys[site.node.name]
            if _is_end(site):
                sent.add(tensor)
            if producer is None:
                if x.op.type == "Placeholder" and self._outputs is not None:
                    fed.add(tensor)
                continue
            if producer[0] is not Phase.FORWARD or phase is Phase.UPDATE:
                continue
            if producer[1] < stage:
                crossing.setdefault(stage, set()).add(tensor)
            elif phase is Phase.BACKWARD:
                saved.setdefault((stage, branch), set()).add(tensor)
        return crossing, saved, fed, sent

    # Variables ------------------------------------------------------------------------------

    def _reads(self) -> dict[TensorKey, set[TensorKey]]:
        """Tensors that give the values of each variable to forward nodes, by its handle."""
        reads: dict[TensorKey, set[TensorKey]] = {}
        consumed = {
            (x.op.name, x.value_index) for site, x, _ in self._edges()
            if self._keys[site.node.name][0] is Phase.FORWARD and not site.node.marks.get("metric")
        }
        for site in self._sites:
            if site.node.type in _READING and self._keys[site.node.name][0] is Phase.FORWARD:
                handle = site.node.inputs[0]
                outputs = {(x.op.name, x.value_index) for x in site.node.outputs}
                if outputs & consumed:
                    key = handle.op.name, handle.value_index
                    reads.setdefault(key, set()).update(outputs)
        return reads

    def _held(self) -> dict[tuple[int, int], dict[str, Holding]]:
        """What each variable holds, where it is first used."""
        sums = {
            str(site.node.marks.get("variable", "")): _size(self._values.get(
                (site.node.outputs[0].op.name, 0)))
            for site in self._sites if _kernel(site) == "Accumulate"
        }
        used: dict[str, tuple[int, int]] = {}
        variables: dict[str, Variable] = {}
        for handle, tensors in self._reads().items():
            variable = self._variables.get(handle)
            if variable is None:
                continue
            phase_key = min((self._keys[name] for name, _ in tensors), key=lambda k: k[1:])
            used[variable.name], variables[variable.name] = phase_key[1:], variable
        state = self._state(variables)
        rows: dict[tuple[int, int], dict[str, Holding]] = {}
        for name, key in used.items():
            slots = state.get(name, ())
            rows.setdefault(key, {})[name] = Holding(
                _size(variables[name].value), sums.get(name, 0), tuple(map(_size, slots)),
                _itemsize(slots[0]) if slots else 4,
            )
        return rows

    def _state(self, parameters: dict[str, Variable]) -> dict[str, list[Any]]:
        """The optimiser's tensors of each parameter, by the names that slots have."""
        summed = {
            site.node.inputs[0].op.name for site in self._sites
            if site.node.type == "ReadVariableOp" and site.node.marks.get("phase")
        }
        state: dict[str, list[Any]] = {}
        for site in self._sites:
            is_apart = site.node.type == "If" and site.node.marks.get("phase")
            if not is_apart and (site.direction != "optimizer" or site.layer != OPTIMIZER):
                continue
            for x in site.node.inputs:
                variable = self._variables.get((x.op.name, x.value_index))
                if variable is None or x.op.name in summed or variable.name in parameters:
                    continue
                owner = max(
                    (n for n in parameters if n in variable.name), key=len, default=None
                )
                slots = state.setdefault(owner, []) if owner is not None else []
                if _count(variable.value) > 1 and not any(
                    variable.value is slot for slot in slots
                ):
                    slots.append(variable.value)
        return state


def _kernel(site: NodeSite) -> str:
    return str(site.node.marks.get("kernel", site.node.type))


def _is_end(site: NodeSite) -> bool:
    """Whether a node sends to the host."""
    return _kernel(site) == "Enqueue"


def _is_feed(site: NodeSite) -> bool:
    """Whether a node takes from the host."""
    return bool(site.node.marks.get("feed")) or site.node.type.startswith("IteratorGetNext")


def _stored_nodes(sites: Sequence[NodeSite]) -> set[str]:
    """Nodes whose results recomputation keeps: checkpoints, random numbers and masks of them."""
    names: set[str] = set()
    for site in sites:
        entry, node = TABLE.get(_kernel(site)), site.node
        from_random = [x.op.name in names for x in node.inputs if x.op.type != "Const"]
        is_mask = any(from_random) and (
            all(from_random) or all(x.dtype == tf.bool for x in node.outputs)
        )
        if node.marks.get("checkpoint") or (entry is not None and entry.draws) or is_mask:
            names.add(node.name)
    return names


def memories(value: Any) -> Iterator[tuple[int, int]]:
    """Names of the memory of a value, each with its bytes; kernels may return several arrays."""
    if isinstance(value, Array):
        yield _origin(value.carrier), value.storage_bytes
    elif isinstance(value, np.ndarray):
        yield _origin(value), value.nbytes
    elif isinstance(value, np.generic):
        yield id(value), value.nbytes
    elif isinstance(value, tuple | list):
        for part in value:
            yield from memories(part)


def _origin(array: Any) -> int:
    return id(array if array.base is None else array.base)


def _size(value: Any) -> int:
    return sum(size for _, size in memories(value))


def _count(value: Any) -> int:
    return int(np.size(value.carrier if isinstance(value, Array) else value))


def _itemsize(value: Any) -> int:
    return _size(value) // max(_count(value), 1)
