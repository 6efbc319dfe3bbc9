"""Tensor: an array on a device and the operation that computed it; the tape and its reverse pass.

A `Primitive` (`ipu.ops`) is one differentiable operation: its forward rule and one vector-Jacobian
product per argument.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from fpsim.array import Array
from fpsim.elementwise.sizes import checked_count
from fpsim.records.formats import Format
from fpsim.state.processor import usual_arithmetic
from ipu.machine.device import Device
from ipu.machine.late import Late
from ipu.ops import arithmetic, moves, products
from ipu.ops.listing import current_listing, list_operation
from ipu.ops.primitive import OperationCost, Primitive
from ipu.ops.saved import Reading, is_packing, memory, packed

__all__ = [
    "OperationCost", "Primitive", "Rule", "TapeNode", "Tensor", "Watch", "contributions",
    "gradients", "inlet", "nodes", "pull_back", "saved_bytes", "total_cost",
]

_numbers = itertools.count()


def checked_tensor(x: Any, name: str) -> Tensor:
    """x, which must be a Tensor; `name` is the function that takes it."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{name} takes a Tensor, got {type(x).__name__}; make one with Tensor(array, device)"
        )
    return x


def _packed_saved(saved: tuple[Any, ...], tensors: Sequence[Tensor]) -> list[Any]:
    """What a forward rule saved, its arrays as codes; those of a computed tensor exist once.

    Variables and constants are alive through the step, so they are kept as they are.
    """
    items: list[Any] = []
    for x in saved:
        if isinstance(x, Array):
            for tensor in reversed(tensors):
                if tensor.array is x:
                    x = tensor.stored
                    break
            else:
                x = packed(x)
        items.append(x)
    return items


def _no_forward(device: Device) -> tuple[Array, tuple[Any, ...]]:
    raise RuntimeError("an inlet is created by inlet(tensor)")


#: Of the tape entries that stand for tensors of another tape.
INLET = Primitive("inlet", _no_forward, (), unit="none")


class TapeNode(NamedTuple):
    """How a tensor was computed: an entry of the tape."""

    primitive: Primitive
    #: Where each input comes from; computed values that no rule has saved are not kept.
    inputs: tuple[TapeNode | Tensor, ...]
    saved: list[Any]
    options: dict[str, Any]
    #: Name under which its operations are counted.
    layer: str
    #: Whether it rounded stochastically; so do its backward rules.
    stochastic: bool
    cost: OperationCost
    number: int


class Rule(NamedTuple):
    """A rule of a row that was computed; `Device.watch` is called with it and its result.

    argument    whose gradient it is; None: the forward rule.
    operands    of the forward rule; of a backward rule the gradient.
    saved       by the forward rule.
    """

    primitive: Primitive
    argument: int | None
    operands: Sequence[Array]
    saved: Sequence[Any]
    options: dict[str, Any]


#: watch(operation that the gradient came through, gradient), called for each backward rule.
Watch = Callable[[TapeNode, Array], None]


class Tensor:
    """Values on a device, and the tape entry of the operation that computed them.

    Operators are operations of `ipu.ops`: each step is rounded once in the tensors' format, which
    must be one; a number becomes a constant of it. Shapes broadcast.

    >>> from fpsim import BINARY16
    >>> x = Tensor(Device().from_host([1.0, 2.0], BINARY16), Device())
    >>> x
    Tensor(shape=(2,), binary16)
    >>> (1 - x / 3)[:1].array.tolist()
    [0.6669921875]
    """

    #: Ahead of ndarray, so that ndarray + Tensor is refused here, with our sentence.
    __array_ufunc__ = None
    __slots__ = ("_packed", "array", "device", "name", "node")

    def __init__(
        self, array: Array, device: Device, name: str = "", node: TapeNode | None = None
    ) -> None:
        self.array = array
        self.device = device
        self.name = name
        self.node = node
        self._packed: Array | None = None

    @property
    def stored(self) -> Array:
        """What the tape keeps of its values."""
        if self.node is None:  # a variable's values change
            return self.array
        if self._packed is None:
            self._packed = packed(self.array)
        return self._packed

    @property
    def needs_gradient(self) -> bool:
        """Whether a backward pass reaches it."""
        return self.node is not None

    # Without a call of Python, as in `Array`.
    dtype: Format = property(  # type: ignore[assignment]
        attrgetter("array.context.core.settings.format"),
        doc="The format, under the name that layers know it by.",
    )
    shape: tuple[int, ...] = property(  # type: ignore[assignment]
        attrgetter("array.shape"), doc="Elements along each axis."
    )

    def record(
        self, primitive: Primitive, inputs: Sequence[Tensor], name: str, options: dict[str, Any]
    ) -> Tensor:
        """The result of a primitive, on the tape if an input needs a gradient."""
        arrays, is_taped = [], False
        for x in inputs:
            if not isinstance(x, Tensor):
                checked_tensor(x, primitive.name)
            arrays.append(x.array)
            is_taped = is_taped or x.node is not None or x.needs_gradient
        device = self.device
        if primitive.check is not None:
            primitive.check(*arrays)
        listing = current_listing()
        if listing is not None:
            list_operation(listing, device.tensor or name, primitive.name, arrays, options)
        if device.compute is None:
            output, saved = primitive.forward(device, *arrays, **options)
        else:
            output, saved = device.compute(primitive.forward, *arrays, **options)
        if device.watch is not None:
            device.watch(Rule(primitive, None, arrays, saved, dict(options)), output)
        result = Tensor(output, device, name)
        if is_taped:
            for passing in primitive.passing:
                options.pop(passing, None)
            origins: tuple[TapeNode | Tensor, ...] = ()
            for x in inputs:  # a comprehension is a call of Python 3.11
                origins += (x if x.node is None else x.node,)
            result.node = TapeNode(
                primitive, origins, [], options, device.tensor, device.control.esr,
                primitive.cost(arrays, output), next(_numbers),
            )
            if saved:
                result.node.saved.extend(_packed_saved(saved, (*inputs, result)))
        return result

    def __repr__(self) -> str:
        label = f"{self.name!r}, " if self.name else ""
        return f"{type(self).__name__}({label}shape={self.shape}, {self.dtype.name})"

    # Operators ------------------------------------------------------------------------------

    def __add__(self, y: Operand) -> Tensor:
        return _added(self, _tensor(y, self, "+"))

    def __radd__(self, y: Operand) -> Tensor:
        return _added(self, _tensor(y, self, "+"))

    def __sub__(self, y: Operand) -> Tensor:
        return _difference(self, _tensor(y, self, "-"))

    def __rsub__(self, y: Operand) -> Tensor:
        return _difference(_tensor(y, self, "-"), self)

    def __mul__(self, y: Operand) -> Tensor:
        return _multiplied(self, y)

    def __rmul__(self, y: Operand) -> Tensor:
        return _multiplied(self, y)

    def __truediv__(self, y: Operand) -> Tensor:
        return _quotient(self, _tensor(y, self, "/"))

    def __rtruediv__(self, y: Operand) -> Tensor:
        return _quotient(_tensor(y, self, "/"), self)

    def __matmul__(self, y: Tensor) -> Tensor:
        return products.matmul(self, checked_tensor(y, "@"))

    def __rmatmul__(self, y: Tensor) -> Tensor:
        return products.matmul(checked_tensor(y, "@"), self)

    def __pow__(self, n: int) -> Tensor:
        return _power(self, n)

    def __neg__(self) -> Tensor:
        return arithmetic.scale(self, factor=-1.0)

    def __getitem__(self, index: moves.Index) -> Tensor:
        return moves.strided_slice(self, index=index)


#: What stands beside a Tensor in an operator.
Operand = Tensor | int | float

#: Largest power: each costs a product.
_LARGEST_POWER = 64


def _tensor(y: Any, beside: Tensor, operator: str) -> Tensor:
    """A number as a constant of the format beside it, to nearest."""
    if isinstance(y, Tensor):
        return y
    if not _is_number(y):
        return checked_tensor(y, operator)
    return Tensor(beside.device.context(beside.dtype).full((), y), beside.device)


def _is_number(y: Any) -> bool:
    return isinstance(y, (int, float)) and not isinstance(y, bool)


def _wide(x: Tensor, y: Tensor) -> tuple[int, ...]:
    """The shape that both broadcast to."""
    try:
        return np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        raise ValueError(
            f"operands have shapes {x.shape} and {y.shape}, which do not broadcast; give shapes "
            "that agree or are 1"
        ) from None


def _spread(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """x broadcast to a shape: ones times x, which rounds nothing."""
    if x.shape == shape:
        return x
    if not x.needs_gradient:
        values = np.broadcast_to(x.array.carrier, shape).copy()
        return Tensor(Array(values, x.array.context), x.device, x.name)
    ones = Tensor(x.device.context(x.dtype).ones(shape), x.device)
    return arithmetic.multiply(ones, x)


def _ordered(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The two, the first in the shape of the result; for operations that take either first."""
    shape = _wide(x, y)
    if x.shape != shape and y.shape == shape:
        return y, x
    return _spread(x, shape), y


def _added(x: Tensor, y: Tensor) -> Tensor:
    if x.shape == y.shape:
        return arithmetic.add(x, y)
    return arithmetic.bias(*_ordered(x, y))


def _difference(x: Tensor, y: Tensor) -> Tensor:
    return arithmetic.subtract(_spread(x, _wide(x, y)), y)


def _multiplied(x: Tensor, y: Operand) -> Tensor:
    if _is_number(y):
        return arithmetic.scale(x, factor=y)
    return arithmetic.multiply(*_ordered(x, checked_tensor(y, "*")))


def _quotient(x: Tensor, y: Tensor) -> Tensor:
    return arithmetic.divide(_spread(x, _wide(x, y)), y)


def _power(x: Tensor, n: int) -> Tensor:
    """((x · x) · x) · …, every product rounded."""
    if checked_count("n", n, 1) > _LARGEST_POWER:
        raise ValueError(f"n={n} is beyond {_LARGEST_POWER} products; take a smaller power")
    result = x
    for i in range(n - 1):
        result = arithmetic.multiply(result, x) if i else arithmetic.square(x)
    return result


def _origin(tensor: Tensor) -> TapeNode | Tensor:
    """The tape entry of a computed tensor; a variable or a constant itself."""
    return tensor if tensor.node is None else tensor.node


def inlet(outside: Tensor) -> Tensor:
    """The values of a tensor as a new entry of the tape, which depends on nothing.

    Gradients that reach an inlet are added as they come, as they are for computed tensors, so a
    model that is cut at a tensor adds in the order of the uncut one.
    """
    if not outside.needs_gradient:
        return Tensor(outside.array, outside.device, outside.name)
    device = outside.device
    node = TapeNode(
        INLET, (), [], {}, device.tensor, device.control.esr, OperationCost(), next(_numbers)
    )
    inside = Tensor(outside.array, device, outside.name, node)
    inside._packed = outside._packed
    return inside


def nodes(*targets: Tensor) -> list[TapeNode]:
    """The tape entries that the targets depend on, latest first."""
    by_number: dict[int, TapeNode] = {}
    waiting = [_origin(target) for target in targets]
    while waiting:
        node = waiting.pop()
        if isinstance(node, TapeNode) and node.number not in by_number:
            by_number[node.number] = node
            waiting.extend(node.inputs)
    return [by_number[number] for number in sorted(by_number, reverse=True)]


@usual_arithmetic
def gradients(
    target: Tensor, sources: Sequence[Tensor], seed: Array, watch: Watch | None = None
) -> list[Array | None]:
    """Gradients of target, weighted by seed, for each source; None for a source not on the tape.

    The tape holds variables and tensors computed from them, no other inputs.

    watch     called with the operation and the gradient after every backward rule.

    Rounding  each backward rule through the device; contributions to one tensor are added in the
              order in which the tape is read, latest first.
    """
    summands = contributions(target, sources, seed, watch)
    return [_sum_of(source, row) for source, row in zip(sources, summands, strict=True)]


def contributions(
    target: Tensor, sources: Sequence[Tensor], seed: Array, watch: Watch | None = None
) -> list[list[Array]]:
    """The summands of each source's gradient, latest first; one for each use of the source.

    Rounding  as in `gradients`, without the sums of the sources themselves.
    """
    return pull_back([(target, seed)], sources, watch)


@usual_arithmetic
def pull_back(
    targets: Sequence[tuple[Tensor, Array]], sources: Sequence[Tensor], watch: Watch | None = None
) -> list[list[Array]]:
    """The summands of each source's gradient, latest first, of several targets with their seeds.

    A source that was computed, or is an `inlet`, gets one summand at most: its sum. In training
    what the tape keeps is freed on the way.

    Products that are gradients of variables may come late (`Device.settling`).

    Rounding  as in `contributions`. The gradient of a target that is used for other targets too
              starts from its seed, and the contributions of these uses are added to it.
    """
    asked = [id(source if source.node is None else source.node) for source in sources]
    leaves: dict[int, list[Array]] = {id(s): [] for s in sources if s.node is None}
    reached: dict[int, Array] = {}
    device = targets[0][0].device
    for target, seed in targets:
        key = id(_origin(target))
        if key in reached:
            raise ValueError("targets name a tensor twice; add its seeds first")
        reached[key] = seed
        if key in leaves:  # a variable that is a target itself
            leaves[key].append(seed)
    frees, before = is_packing(), (device.tensor, device.control)
    controls = {before[1].esr: before[1]}
    with device.settling():
        try:
            for node in nodes(*(target for target, _ in targets)):
                # A gradient that nobody asked for is freed once its backward rules have run.
                take = reached.get if id(node) in asked else reached.pop
                gradient = take(id(node), None)
                if gradient is None:
                    continue
                if node.stochastic not in controls:
                    controls[node.stochastic] = replace(before[1], esr=node.stochastic)
                device.tensor = f"{node.layer}/gradient"
                if device.control is not controls[node.stochastic]:
                    device.control = controls[node.stochastic]
                _pull_back(device, node, gradient, watch, leaves, reached)
                if frees:
                    node.saved.clear()
        finally:
            device.tensor, device.control = before
    results = []
    for key in asked:
        summands = leaves.get(key) or ([reached[key]] if key in reached else [])
        if frees and key in leaves:
            summands = list(map(packed, summands))
        results.append(summands)
    return results


def _pull_back(
    device: Device, node: TapeNode, gradient: Array, watch: Watch | None,
    leaves: dict[int, list[Array]], reached: dict[int, Array],
) -> None:
    """The backward rules of a node: their results join those of `leaves`, and sums in `reached`."""
    saved = Reading(node.saved)
    pairs = zip(node.inputs, node.primitive.vjps, strict=True)
    for argument, (origin, vjp) in enumerate(pairs):
        is_variable = isinstance(origin, Tensor)
        if vjp is None or (isinstance(origin, Tensor) and not origin.needs_gradient):
            continue
        # The gradient of a variable is not read before the end.
        device.puts_off = is_variable
        if device.compute is None:
            summand = vjp(device, gradient, saved, **node.options)
        else:
            summand = device.compute(vjp, gradient, saved, **node.options)
        if device.watch is not None:
            device.watch(
                Rule(node.primitive, argument, (gradient,), saved, node.options), summand)
        if watch is not None:
            watch(node, summand)
        key = id(origin)
        if key in leaves:  # as codes, unless the values come late: nobody waits for them now
            leaves[key].append(summand if isinstance(summand, Late) else packed(summand))
        else:
            total = reached.get(key)
            reached[key] = summand if total is None else device.add(total, summand)


def _sum_of(source: Tensor, summands: Sequence[Array]) -> Array | None:
    if len(summands) < 2:
        return summands[0] if summands else None
    total = summands[0]
    with source.device.naming(f"{source.name}/gradient"):
        for summand in summands[1:]:
            total = source.device.add(total, summand)
    return total


def total_cost(target: Tensor) -> OperationCost:
    """Cost of the forward pass that led to target."""
    costs = [node.cost for node in nodes(target)]
    return OperationCost(*(sum(column) for column in zip(OperationCost(), *costs, strict=True)))


def saved_bytes(target: Tensor) -> int:
    """Bytes that the tape keeps for the backward pass; an array saved twice counts once."""
    saved = (item for node in nodes(target) for item in node.saved)
    return sum(dict(memory(item) for item in saved if isinstance(item, Array)).values())
