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

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from enum import IntEnum

from fpsim.state.bits import Philox
from ipu.learn.variables import Variable
from ipu.machine.assigned import Assigned
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
        self._nearest = nearest
        seed = device.source.seed
        #: Another source than Philox has no numbers: it goes on from operation to operation.
        self._common: Philox | None = None
        self._of_replica: Philox | None = None
        if seed is not None:
            self._common, self._of_replica = Philox(seed), Philox(replica_seed(seed, replica))
        elif replica or private:
            raise ValueError(f"replicas number their random bits by Philox, got {device.source!r}")
        self._identical = () if private else IDENTICAL
        #: Number of the next operation of each cell and first number entered in this step.
        self._next: dict[tuple[Region, int, int], int] = {}
        self._indices: dict[str, int] = {}
        self._open = 0
        if self._of_replica is not None:
            device.source = self._of_replica
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
        return self._open > 0

    def begin(self) -> None:
        """No cell has drawn yet: at the start of a step."""
        address(self.step, Region.BATCH, 0, 0)
        self._next.clear()

    def restart(self, region: Region, cell: int = 0) -> None:
        """The cell has drawn nothing yet."""
        self._next.pop((region, cell, 0), None)

    def position(self, region: Region, cell: int) -> int:
        """Number j of the next operation of a cell."""
        return self._next.get((region, cell, 0), 0)

    @contextmanager
    def cell(
        self, region: Region, cell: int = 0, *, first: int = 0, most: int = OPERATIONS,
        again: int | None = None,
    ) -> Iterator[None]:
        """The operations inside draw as those of this cell, after those that it has done.

        first    number j of the first operation of all; each number first has its own sequence.
        most     one more than the last number that the sequence may use.
        again    number of the next operation, where recomputation repeats what was done.
        """
        if self._of_replica is None:
            with self._rounding(region):
                yield
            return
        key = region, cell, first
        start = self._next.get(key, first) if again is None else again
        base = address(self.step, region, cell, 0)
        clock, before = self.device.clock, self.device.clock.operation
        source = self._common if region in self._identical else self._of_replica
        with Assigned(self.device, "source", source), self._rounding(region):
            clock.operation = base + start
            self._open += 1
            try:
                yield
                reached = clock.operation - base
            finally:
                self._open -= 1
                clock.operation = before
        if reached > most:
            raise ValueError(
                f"{reached - start} stochastic operations are more than cell {cell} of "
                f"{region.name} has addresses for ({most - start}); cut the work into more cells"
            )
        self._next[key] = max(reached, self._next.get(key, 0))

    def _rounding(self, region: Region) -> AbstractContextManager[None]:
        """Operations of a region that differs from replica to replica may round to nearest."""
        if self._nearest and region not in IDENTICAL:
            return self.device.rounding(False)
        return _AS_IT_IS

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """`updating` and its like follow this numbering inside."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: ContextVar[Numbering | None] = ContextVar("numbering", default=None)


def _of_variable(region: Region, name: str, first: int, most: int) -> AbstractContextManager[None]:
    """Operations first … most - 1 of a variable's own cell, where a training is in progress."""
    numbering = _current.get()
    v = None if numbering is None else numbering.variable(name)
    if numbering is None or v is None:
        return _AS_IT_IS
    return numbering.cell(region, v, first=first, most=most)


@contextmanager
def accumulating(variable: Variable, micro_batch: int) -> Iterator[None]:
    """The operations inside add this variable's gradient of a micro-batch to its accumulator."""
    numbering = _current.get()
    v = None if numbering is None else numbering.variable(variable.name)
    with variable.device.naming(f"{variable.layer}/accumulate"):
        if numbering is None or v is None:
            yield
            return
        first = PER_VARIABLE * v
        most = first + PER_VARIABLE
        with numbering.cell(Region.ACCUMULATE, micro_batch, first=first, most=most):
            yield


@contextmanager
def updating(variable: Variable, name: str = "update") -> Iterator[None]:
    """The operations inside belong to the update of this variable.

    name    under which they count, after the layer.
    """
    with (
        _of_variable(Region.UPDATE, variable.name, RULE, SLOTS),
        variable.device.naming(f"{variable.layer}/{name}"),
        variable.device.shard(variable.first),
    ):
        yield


@contextmanager
def averaging(variable: Variable) -> Iterator[None]:
    """The operations inside divide the sum of this variable's gradients over replicas."""
    with (
        _of_variable(Region.UPDATE, variable.name, 0, RULE),
        variable.device.naming(f"{variable.layer}/mean"),
    ):
        yield


def rescaling(name: str) -> AbstractContextManager[None]:
    """The operations inside rescale the slots of the variable of that name."""
    return _of_variable(Region.UPDATE, name, SLOTS, OPERATIONS)
