"""Tensor: an array on a device and where it came from; the tape and its reverse pass.

A `Primitive` is one differentiable operation: its forward rule, one vector-Jacobian product per
argument, the unit that runs it, and its cost. What the forward rule says it saves is all that the
backward rules see, so the bytes saved are the memory a training step keeps alive.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu.machine.device import Device

__all__ = [
    "Node", "Primitive", "Tensor", "Watch", "Work", "contributions", "gradients", "nodes",
    "saved_bytes", "work",
]  # fmt: skip

#: forward(device, *arrays, **options) -> (output, what backward needs)
Forward = Callable[..., tuple[Array, tuple[Any, ...]]]
#: vjp(device, gradient of the output, saved, **options) -> gradient of one argument
Vjp = Callable[..., Array]

_numbers = itertools.count()


class Work(NamedTuple):
    """Cost of an operation: multiply-adds of a matrix unit, results of the vector unit.

    cycles    of a thread for these results; see `ipu.machine.vector`.
    """

    macs: int = 0
    results: int = 0
    cycles: int = 0


def one_result_each(arrays: Sequence[Array], output: Array) -> Work:
    """The cost of most element-wise operations."""
    return Work(results=output.size)


@dataclass(frozen=True)
class Primitive:
    """One differentiable operation; called with tensors it computes and writes the tape.

    vjps    one per argument, or None where no gradient flows.
    unit    what runs it: "AMP", "vector", or "none" (no arithmetic).
    cost    of the forward rule, from its arrays and its output.
    passing options of the forward rule that no backward rule reads: the tape does not keep them.
    """

    name: str
    forward: Forward
    vjps: tuple[Vjp | None, ...]
    unit: str = "vector"
    cost: Callable[[Sequence[Array], Array], Work] = field(default=one_result_each)
    passing: tuple[str, ...] = ()

    def __call__(self, *inputs: Tensor, name: str | None = None, **options: Any) -> Tensor:
        if len(inputs) != len(self.vjps):
            raise TypeError(f"{self.name} takes {len(self.vjps)} tensors, got {len(inputs)}")
        device = inputs[0].device
        arrays = [x.array for x in inputs]
        output, saved = self.forward(device, *arrays, **options)
        node = None
        if any(x.needs_gradient for x in inputs):
            cost = self.cost(arrays, output)
            kept = {k: v for k, v in options.items() if k not in self.passing}
            node = Node(
                self, tuple(map(_origin, inputs)), saved, kept, device.tensor, device.control.esr,
                cost, next(_numbers),
            )  # fmt: skip
        return Tensor(output, device, name or self.name, node)


class Node(NamedTuple):
    """How a tensor was computed: an entry of the tape."""

    primitive: Primitive
    #: Where each input comes from; computed values that no rule has saved are not kept.
    inputs: tuple[Node | Tensor, ...]
    saved: tuple[Any, ...]
    options: dict[str, Any]
    #: Name under which its operations are counted.
    layer: str
    #: Whether it rounded stochastically; so do its backward rules.
    stochastic: bool
    cost: Work
    number: int


#: Is told of a gradient as it is computed: the operation it came through, and the values.
Watch = Callable[[Node, Array], None]


class Tensor:
    """Values on a device, and the tape entry that made them.

    >>> from fpsim import BINARY16
    >>> x = Tensor(Device().from_host([1.0, 2.0], BINARY16), Device())
    >>> x
    Tensor(shape=(2,), binary16)
    """

    __slots__ = ("array", "device", "name", "node")

    def __init__(
        self, array: Array, device: Device, name: str = "", node: Node | None = None
    ) -> None:
        self.array = array
        self.device = device
        self.name = name
        self.node = node

    @property
    def needs_gradient(self) -> bool:
        return self.node is not None

    @property
    def dtype(self) -> Format:
        """The format, under the name that layers know it by."""
        return self.array.format

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __repr__(self) -> str:
        label = f"{self.name!r}, " if self.name else ""
        return f"{type(self).__name__}({label}shape={self.shape}, {self.dtype.name})"


def _origin(tensor: Tensor) -> Node | Tensor:
    """The tape entry of a computed tensor; a variable or a constant itself."""
    return tensor if tensor.node is None else tensor.node


def nodes(target: Tensor) -> list[Node]:
    """The tape entries of all that target depends on, latest first."""
    found: dict[int, Node] = {}
    waiting = [_origin(target)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Node) and node.number not in found:
            found[node.number] = node
            waiting.extend(node.inputs)
    return [found[number] for number in sorted(found, reverse=True)]


def gradients(
    target: Tensor, sources: Sequence[Tensor], seed: Array, watch: Watch | None = None
) -> list[Array | None]:
    """Gradients of target, weighted by seed, for each source; None where the tape does not lead.

    The tape leads to variables, and to what was computed from them; not to other inputs.

    watch     is told of every gradient that a backward rule computes, and by which operation.

    Rounding  each backward rule through the device; contributions to one tensor are added in the
              order in which the tape is read, latest first.
    """
    found = contributions(target, sources, seed, watch)
    return [_sum_of(s, parts) for s, parts in zip(sources, found, strict=True)]


def contributions(
    target: Tensor, sources: Sequence[Tensor], seed: Array, watch: Watch | None = None
) -> list[list[Array]]:
    """The summands of each source's gradient, latest first; more than one where it is used again.

    Rounding  as in `gradients`; only the sums of the sources themselves are left out.
    """
    asked = [id(_origin(source)) for source in sources]
    leaves: dict[int, list[Array]] = {id(s): [] for s in sources if s.node is None}
    found: dict[int, Array] = {id(_origin(target)): seed}
    device = target.device
    for node in nodes(target):
        # What is not asked for is forgotten as soon as it has been passed on.
        take = found.get if id(node) in asked else found.pop
        gradient = take(id(node), None)
        if gradient is None:
            continue
        with device.naming(f"{node.layer}/gradient"), device.rounding(node.stochastic):
            for origin, part in _pull_back(device, node, gradient):
                if watch is not None:
                    watch(node, part)
                if id(origin) in leaves:
                    leaves[id(origin)].append(part)
                else:
                    before = found.get(id(origin))
                    found[id(origin)] = part if before is None else device.add(before, part)
    return [leaves.get(key) or ([found[key]] if key in found else []) for key in asked]


def _sum_of(source: Tensor, parts: Sequence[Array]) -> Array | None:
    total = None
    with source.device.naming(f"{source.name}/gradient"):
        for part in parts:
            total = part if total is None else source.device.add(total, part)
    return total


def _pull_back(
    device: Device, node: Node, gradient: Array
) -> Iterator[tuple[Node | Tensor, Array]]:
    for origin, vjp in zip(node.inputs, node.primitive.vjps, strict=True):
        if vjp is not None and (isinstance(origin, Node) or origin.needs_gradient):
            yield origin, vjp(device, gradient, node.saved, **node.options)


def work(target: Tensor) -> Work:
    """Cost of the forward pass that led to target."""
    costs = [node.cost for node in nodes(target)]
    return Work(*(sum(column) for column in zip(Work(), *costs, strict=True)))


def saved_bytes(target: Tensor) -> int:
    """Bytes that the tape keeps for the backward pass; an array saved twice counts once."""
    kept = {
        (id(item.values), item.format): item.nbytes
        for node in nodes(target)
        for item in node.saved
        if isinstance(item, Array)
    }
    return sum(kept.values())
