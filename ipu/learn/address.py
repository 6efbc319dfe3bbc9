"""Addresses: the number of a stochastic operation by its place in a training.

The number n of an operation, which Philox counts with, is composed of the step t, the region p of
the step, a cell a of the region and the number j of the operation in the cell:
n = t·2^40 + p·2^36 + a·2^20 + j. So neither the schedule of a plan, nor its cut into stages, nor
recomputation moves a random bit.

| region       | cell                           | a | j counts                            | key |
|--------------|--------------------------------|---|-------------------------------------|-----|
| 0 BATCH      | micro-batch m                  | m | operations in order of data flow    | K_r |
| 1 ACCUMULATE | micro-batch m, variable v      | m | 256·v + operation                   | K_r |
| 2 REDUCE     | variable v                     | v | additions over replicas             | K_0 |
| 3 UPDATE     | variable v                     | v | 0 mean, 16 … rule, 128 … slots      | K_0 |
| 4 OPTIMIZER  | what optimisers do with no one variable | 0 | operations                 | K_0 |
| 5 EVALUATE   | a forward pass outside a step  | 0 | operations                          | K_r |
| 15 OTHER     | operations outside a training  | – | operations, running                 | K_r |

K_0 is the seed, K_r the r-th child of Philox(seed). Operations of key K_0 draw equal bits on every
replica. Without a training in progress (`Numbering.in_use`) operations keep a device's running
number.

Source    docs/semantics.md §2.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from enum import IntEnum
from types import TracebackType

from fpsim.state.bits import BitSource, Philox
from ipu.learn.variables import Variable
from ipu.machine.assigned import Bound
from ipu.machine.delayed import Moment
from ipu.machine.device import Device

__all__ = [
    "Numbering", "Region", "accumulating", "address", "averaging", "moment_of", "replica_seed",
    "rescaling", "updating",
]

#: Room of the fields: steps, cells of a region, operations of a cell.
STEPS, CELLS, OPERATIONS = 1 << 23, 1 << 16, 1 << 20
#: Room for the operations of one variable in a cell of ACCUMULATE, and so for variables.
PER_VARIABLE = 256
VARIABLES = OPERATIONS // PER_VARIABLE
#: First operations of a cell of UPDATE: after the mean over replicas, and of slots rescaled.
RULE, SLOTS = 16, 128


class Region(IntEnum):
    """What cells of a step draw for."""

    BATCH = 0
    ACCUMULATE = 1
    REDUCE = 2
    UPDATE = 3
    OPTIMIZER = 4
    EVALUATE = 5
    OTHER = 15


#: Regions that draw equal bits on every replica.
IDENTICAL = (Region.REDUCE, Region.UPDATE, Region.OPTIMIZER)

#: Around operations that draw and round as those before.
_AS_IT_IS = nullcontext()


def address(step: int, region: int, cell: int, operation: int) -> int:
    """The number of an operation.

    Raises    ValueError for a field beyond its room.

    >>> address(1, 2, 3, 4)
    1236953726980
    """
    if not (
        0 <= step < STEPS and 0 <= region < 16 and 0 <= cell < CELLS and 0 <= operation < OPERATIONS
    ):
        fields = (("step", step, STEPS), ("region", region, 16), ("cell", cell, CELLS),
                  ("operation", operation, OPERATIONS))
        name, value, room = next(field for field in fields if not 0 <= field[1] < field[2])
        raise ValueError(
            f"{name}={value} of a training has no address; use 0 to {room - 1}: fewer "
            "micro-batches, variables or operations in one step"
        )
    return step << 40 | region << 36 | cell << 20 | operation


def moment_of(number: int) -> Moment:
    """The moment of the operation of that number; outside of steps nothing trains.

    >>> moment_of(address(7, Region.BATCH, 3, 0))
    Moment(step=7, micro_batch=3, is_training=True)
    """
    region, cell = number >> 36 & 15, number >> 20 & CELLS - 1
    is_training = region in (Region.BATCH, Region.ACCUMULATE)
    return Moment(number >> 40, cell if is_training else 0, is_training)


def replica_seed(seed: int, replica: int) -> int:
    """The key of a replica's own random bits.

    >>> [replica_seed(42, r) for r in (0, 1)]
    [42, 5895813825887534595]
    """
    return Philox(seed).spawn(replica).seed if replica else seed


class Numbering:
    """Numbers the stochastic operations of a training on one device.

    replica        r, which chooses the key of the private regions.
    private        every region draws by K_r: replicas then differ in their updates too.
    nearest        regions that differ from replica to replica round to nearest, as with the
                   vendor's REPLICA_IDENTICAL_ONLY.

    >>> device = Device(seed=42)
    >>> numbering = Numbering(device)
    >>> with numbering.cell(Region.BATCH, 3):
    ...     device.clock.operation == address(0, 0, 3, 0)
    True
    """

    def __init__(
        self, device: Device, replica: int = 0, *, private: bool = False, nearest: bool = False
    ) -> None:
        self.device = device
        #: Steps tried so far.
        self.step = 0
        self.nearest = nearest
        seed = device.source.seed
        #: Another source than Philox has no numbers: it goes on from operation to operation.
        self.common: Philox | None = None
        self.of_replica: BitSource | None = None
        if seed is not None:
            self.common, self.of_replica = Philox(seed), Philox(replica_seed(seed, replica))
        elif replica or private:
            raise ValueError(f"replicas number their random bits by Philox, got {device.source!r}")
        self.identical = () if private else IDENTICAL
        #: Number of the next operation of each cell and first number entered in this step.
        self.numbers: dict[tuple[Region, int, int], int] = {}
        self._indices: dict[str, int] = {}
        self.n_open = 0
        if self.of_replica is not None:
            device.source = self.of_replica
            device.clock.operation = address(0, Region.OTHER, 0, 0)

    def index(self, variables: Sequence[Variable]) -> None:
        """Number the trainable variables, in the order of their creation."""
        if len(variables) > VARIABLES:
            raise ValueError(
                f"{len(variables)} trainable variables have no addresses; use {VARIABLES} or fewer"
            )
        self._indices = {variable.name: v for v, variable in enumerate(variables)}

    def variable(self, name: str) -> int | None:
        """Number of the trainable variable of that name; None for any other."""
        return self._indices.get(name)

    @property
    def is_drawing(self) -> bool:
        """Whether a cell is open."""
        return self.n_open > 0

    def begin(self) -> None:
        """No cell has drawn yet: at the start of a step."""
        address(self.step, Region.BATCH, 0, 0)
        self.numbers.clear()

    def restart(self, region: Region, cell: int = 0) -> None:
        """The cell has drawn nothing yet."""
        self.numbers.pop((region, cell, 0), None)

    def position(self, region: Region, cell: int) -> int:
        """Number j of the next operation of a cell."""
        return self.numbers.get((region, cell, 0), 0)

    def source_of(self, region: Region) -> BitSource:
        """What operations of a region draw from."""
        is_common = region in self.identical
        source: BitSource | None = self.common if is_common else self.of_replica
        assert source is not None
        return source

    def reach(self, region: Region, cell: int, operation: int) -> None:
        """The operations of a cell before this number have been."""
        key = region, cell, 0
        self.numbers[key] = max(operation, self.numbers.get(key, 0))

    def cell(
        self, region: Region, cell: int = 0, *, first: int = 0, most: int = OPERATIONS,
        again: int | None = None,
    ) -> _OpenCell:
        """The operations inside draw as those of this cell, after those that it has done.

        first    number j of the first operation of all; each number first has its own sequence.
        most     one more than the last number that the sequence may use.
        again    number of the next operation, where recomputation repeats what was done.
        """
        return _OpenCell(self, region, cell, first, most, again)

    def in_use(self) -> Bound[Numbering]:
        """`updating` and its like follow this numbering inside."""
        return Bound(_current, self)


class _OpenCell:
    """A cell that operations draw from; see `Numbering.cell`.

    A class takes a third of the calls that a generator does; a step opens one for each variable.
    """

    __slots__ = (
        "_again", "_base", "_before", "_cell", "_first", "_most", "_numbering", "_region",
        "_rounds_to_nearest", "_start",
    )

    def __init__(
        self, numbering: Numbering, region: Region, cell: int, first: int, most: int,
        again: int | None,
    ) -> None:
        self._numbering, self._region, self._cell = numbering, region, cell
        self._first, self._most, self._again = first, most, again
        self._rounds_to_nearest = numbering.nearest and region not in IDENTICAL

    def __enter__(self) -> None:
        numbering, region = self._numbering, self._region
        device = numbering.device
        clock = device.clock
        self._before = device.source, device.control, clock.operation
        if numbering.of_replica is not None:
            self._base = address(numbering.step, region, self._cell, 0)
            first = numbering.numbers.get((region, self._cell, self._first), self._first)
            self._start = first if self._again is None else self._again
            device.source = numbering.source_of(region)
            clock.operation = self._base + self._start
            numbering.n_open += 1
        # Operations of a region that differs from replica to replica may round to nearest.
        if self._rounds_to_nearest:
            device.control = replace(device.control, esr=False)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        numbering = self._numbering
        device = numbering.device
        source, control, operation = self._before
        if self._rounds_to_nearest:
            device.control = control
        if numbering.of_replica is None:
            return
        reached, device.source = device.clock.operation, source
        numbering.n_open -= 1
        device.clock.operation = operation
        if kind is not None:
            return
        reached -= self._base
        if reached > self._most:
            raise ValueError(
                f"{reached - self._start} stochastic operations are more than cell {self._cell} of "
                f"{self._region.name} has addresses for ({self._most - self._start}); cut the work "
                "into more cells"
            )
        key = self._region, self._cell, self._first
        numbering.numbers[key] = max(reached, numbering.numbers.get(key, 0))


_current: ContextVar[Numbering | None] = ContextVar("numbering", default=None)


def _of_variable(region: Region, name: str, first: int, most: int) -> AbstractContextManager[None]:
    """Operations first … most - 1 of a variable's own cell, where a training is in progress."""
    numbering = _current.get()
    v = None if numbering is None else numbering.variable(name)
    if numbering is None or v is None:
        return _AS_IT_IS
    return _OpenCell(numbering, region, v, first, most, None)


class _OnVariable:
    """What is done with a variable: in its layer's name, in a cell, from its first element on."""

    __slots__ = ("_before", "_cell", "_device", "_name", "_shard")

    def __init__(
        self, variable: Variable, name: str, cell: AbstractContextManager[None],
        first: int | None = None,
    ) -> None:
        self._device, self._name = variable.device, f"{variable.layer}/{name}"
        self._cell = cell
        self._shard = _AS_IT_IS if first is None else self._device.shard(first)

    def __enter__(self) -> None:
        device = self._device
        self._before = device.tensor
        self._cell.__enter__()
        self._shard.__enter__()
        device.tensor = self._name

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._device.tensor = self._before
        self._shard.__exit__(kind, error, trace)
        self._cell.__exit__(kind, error, trace)


def accumulating(variable: Variable, micro_batch: int) -> AbstractContextManager[None]:
    """The operations inside add this variable's gradient of a micro-batch to its accumulator."""
    numbering = _current.get()
    v = None if numbering is None else numbering.variable(variable.name)
    cell: AbstractContextManager[None] = _AS_IT_IS
    if numbering is not None and v is not None:
        first = PER_VARIABLE * v
        cell = numbering.cell(
            Region.ACCUMULATE, micro_batch, first=first, most=first + PER_VARIABLE
        )
    return _OnVariable(variable, "accumulate", cell)


def updating(variable: Variable, name: str = "update") -> AbstractContextManager[None]:
    """The operations inside belong to the update of this variable.

    name    under which they count, after the layer.
    """
    cell = _of_variable(Region.UPDATE, variable.name, RULE, SLOTS)
    return _OnVariable(variable, name, cell, variable.first)


def averaging(variable: Variable) -> AbstractContextManager[None]:
    """The operations inside divide the sum of this variable's gradients over replicas."""
    return _OnVariable(variable, "mean", _of_variable(Region.UPDATE, variable.name, 0, RULE))


def rescaling(name: str) -> AbstractContextManager[None]:
    """The operations inside rescale the slots of the variable of that name."""
    return _of_variable(Region.UPDATE, name, SLOTS, OPERATIONS)
