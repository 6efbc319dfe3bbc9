"""The table of kernels: for each type of node a builder, and a sentence on its roundings.

A builder gets the `NodeSite` of a node, reads its attributes once and returns a function from the
node's inputs to its outputs: a value where there is one output, else a tuple. It computes with the
device's verbs or the rules of `ipu.ops`.

A joint kernel gets a list of inputs, one for each replica, and returns a list of outputs: control
flow, and what replicas do together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fpsim.array import Array
from fpsim.records.formats import BINARY16, BINARY32, Format
from ipu.frontends.tensorflow.engine.errors import user_line
from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.frontends.tensorflow.engine.node import Node
from ipu.frontends.tensorflow.engine.values import FORMATS
from ipu.machine.choice import find_partials
from ipu.ops.primitive import Primitive
from ipu.ops.updates import UpdateRow
from ipu.run.account import fit
from ipu.run.site import Site

__all__ = [
    "TABLE", "KernelEntry", "NodeSite", "Run", "SubProgram", "gradient_rule", "kernel", "moved",
    "several", "single", "within",
]

Run = Callable[..., Any]
#: A row of the table of operations or of updates.
Row = Primitive | UpdateRow


class SubProgram(Protocol):
    """A plan of a function that a node calls."""

    has_effects: bool
    counts: bool
    is_training: bool

    def run(self, inputs: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]: ...
    def begin_measuring(self) -> None: ...


@dataclass(slots=True)
class NodeSite(Site):
    """Where a node runs.

    fmt        format of its floating-point results; None: it has none.
    gradients  formats in which gradients of its program are computed, as far as it is planned.
    narrow     format into which its binary32 results are rounded; None: they stay.
    gradient_at  which input is the gradient that a loss scale divides; None: it is no such node.
    widens_halves    what the program made tf.half is binary32 here.
    """

    node: Node
    machine: Machine
    #: Plans a function that the node calls.
    plan: Callable[[Any, str], SubProgram]
    gradients: Collection[Format] = ()
    fmt: Format | None = None
    narrow: Format | None = None
    gradient_at: int | None = None
    widens_halves: bool = False

    @property
    def line(self) -> str:
        """FILE:LINE of the user's program that built the node."""
        return user_line(self.node.op)

    def attr(self, name: str) -> Any:
        return self.node.attr(name)

    def format_of(self, dtype: Any) -> Format | None:
        """The format that tensors of a data type hold here; None for integers."""
        fmt = FORMATS.get(dtype)
        if self.widens_halves and fmt == BINARY16:
            return BINARY32
        if fmt is None or self.machine.is_plain or dtype.size != 4:
            return fmt
        return self.policy.param if self.is_update else self.activations

    def partials(self, operation: str) -> Format | None:
        """Partials of a product: by the scope, the policy or the device."""
        assert self.fmt is not None
        marks = self.node.marks
        marked = marks.get("partials")
        if self.direction == "backward":
            marked = marks.get("backward_partials", marked)
        wanted = find_partials(marked) if marked else None
        if wanted is None and not self.machine.is_plain:
            wanted = self.policy.partials
        return self.device.partials_for(self.fmt, operation, wanted=wanted)

    def constant(self, value: float, fmt: Format | None = None) -> Array:
        """A number in a format, the node's if none is named; one that does not fit is noted."""
        fmt = fmt or self.fmt
        assert fmt is not None
        rounded = self.device.context(fmt).constant(value)
        change = fit(value, float(rounded.carrier), fmt)
        if change:
            self.note_constant(fmt, value, change, rounded)
        return rounded

    def note_on_host(self, size: int) -> None:
        """The host computed so many results in binary64."""
        self.run.account.add("host", self.node.type, size)


@dataclass(frozen=True)
class KernelEntry:
    """How nodes of a type run.

    rounding  its rounding places in words.
    is_any    it also takes tensors without floating point, else TensorFlow's kernel does.
    keeps     results have the formats of the inputs, which are taken as they are.
    is_joint  it runs for all replicas at once.
    draws     it takes random numbers, also where rounding does not.
    on_host   the host computes in binary64.
    rows      the rows of `ipu.ops` that compute it; none where nothing is computed.
    gradient  it computes with the backward rules of the rows.
    """

    name: str
    build: Callable[[NodeSite], Run]
    rounding: str
    is_any: bool = False
    keeps: bool = False
    is_joint: bool = False
    draws: bool = False
    on_host: bool = False
    rows: tuple[Row, ...] = ()
    gradient: bool = False


#: By type of node, and by the names that marks give to composites.
TABLE: dict[str, KernelEntry] = {}


def kernel(
    *names: str, of: Row | Sequence[Row] = (), gradient: bool = False,
    rounding: str | None = None, is_any: bool = False, keeps: bool = False, is_joint: bool = False,
    draws: bool = False, on_host: bool = False,
) -> Callable[[Callable[[NodeSite], Run]], Callable[[NodeSite], Run]]:
    """Enter a builder for nodes of these types.

    of          the rows that it computes with; `gradient`: with their backward rules.
    rounding    by default what the first row says.
    """
    rows = (of,) if isinstance(of, Primitive | UpdateRow) else tuple(of)
    if rounding is None:
        first = rows[0]
        rounding = first.rounding
        if gradient and isinstance(first, Primitive):
            rounding = first.gradient
    words = rounding

    def enter(build: Callable[[NodeSite], Run]) -> Callable[[NodeSite], Run]:
        for name in names:
            assert name not in TABLE, name
            TABLE[name] = KernelEntry(
                name, build, words, is_any, keeps, is_joint, draws, on_host, rows, gradient
            )
        return build

    return enter


def moved(x: Any, move: Callable[[Any], Any]) -> Any:
    """A value whose elements move; nothing is computed."""
    return x.like(move(x.carrier)) if isinstance(x, Array) else move(x)


def within(site: NodeSite, indices: Any, count: int) -> Any:
    """Indices that are 0 … count - 1; numpy would count negative ones from the end.

    Raises    ValueError for another one.
    """
    outside = (indices < 0) | (indices >= count)
    if outside.any():
        raise ValueError(
            f"node {site.node.name} takes index {indices[outside].flat[0]}; use 0 … {count - 1}"
        )
    return indices


def single(values: Sequence[Any]) -> Any:
    """Outputs as kernels return them."""
    return values[0] if len(values) == 1 else tuple(values)


def several(values: Any) -> Sequence[Any]:
    """What a kernel returned as outputs in order."""
    return values if isinstance(values, (tuple, list)) else (values,)


def gradient_rule(primitive: Primitive, argument: int = 0) -> Run:
    """The rule of a primitive for the gradient to one of its arguments."""
    rule = primitive.vjps[argument]
    assert rule is not None, primitive.name
    return rule
