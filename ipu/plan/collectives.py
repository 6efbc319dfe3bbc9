"""Collectives: tensors of several replicas summed in a declared order.

Every addition is one operation of a device, in the format of the tensors: of the replica whose
number its chunk has, in the cell of the variable, so all replicas receive the same bits. `add_at`
is that operation wherever its operands come from; `Group` says which replicas this process
computes, and `ipu.members` has one whose replicas are computed by several.

Source    `ipu.plan.orders`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.array import Array
from fpsim.records.types import Carrier
from ipu.learn.address import Numbering, Region
from ipu.learn.loss_scale import Statistic
from ipu.learn.train import Trainer
from ipu.learn.worker import Worker
from ipu.plan.orders import Addition, Order, Part, Ring, additions, parts
from ipu.plan.trees import sum_in_one_call

__all__ = ["Group", "Summands", "add_at", "check_kinds", "reduce_sum"]


class Summands(NamedTuple):
    """A tensor of each replica of this process, which are summed over all replicas.

    cell      whose random bits the additions draw: the number of the variable.
    name      of the variable, for messages.
    """

    tensors: Sequence[Array]
    cell: int
    name: str = ""


class Group:
    """Where the replicas of a training are computed, and how they agree: all in this process."""

    def own(self, replicas: int) -> range:
        """The replicas of this process, out of so many."""
        return range(replicas)

    def prepare(self, worker: Callable[[int], Worker]) -> None:
        """Called once; `worker(r)` is a new worker of replica r, without variables."""

    @contextmanager
    def step(self, training: Trainer, x: ArrayLike | Array) -> Iterator[None]:
        """Around each step on a batch."""
        yield

    def agree(self, losses: NDArray[Any], statistic: Statistic) -> NDArray[Any]:
        """Losses (G, R) of all replicas of (G, L) of this process; the statistic becomes of all."""
        return losses

    def sums(
        self, jobs: Sequence[Summands], numberings: Sequence[Numbering], order: Order | str,
        ring: Ring | str,
    ) -> list[Array]:
        """The sums over all replicas, each on the device of the first of this process."""
        return [reduce_sum(job.tensors, numberings, job.cell, order, ring) for job in jobs]


def reduce_sum(
    tensors: Sequence[Array], numberings: Sequence[Numbering], cell: int,
    order: Order | str = Order.AUTO, ring: Ring | str = Ring.FLAT,
) -> Array:
    """The sum of a tensor of each replica, on the device of the first.

    cell      whose random bits the additions draw: the number of the variable.

    Shapes    equal; the result has that shape.
    Rounding  each addition once in the tensors' format, in the order of the chunk's tree.
    Raises    ValueError for tensors that differ in format or shape, or are not one a replica.

    >>> from fpsim import BINARY16
    >>> from ipu.machine import Device
    >>> devices = [Device() for _ in range(2)]
    >>> tensors = [d.from_host([1.0, 2.0], BINARY16) for d in devices]
    >>> reduce_sum(tensors, [Numbering(d) for d in devices], 0)
    Array([2., 4.], binary16)
    """
    check_kinds(tensors, len(numberings))
    total = sum_in_one_call(tensors, numberings, cell, order, ring)
    if total is None:
        total = _sum_by_additions(tensors, numberings, cell, order, ring)
    first = tensors[0]
    return Array(total.reshape(first.shape), numberings[0].device.context(first.format))


def _sum_by_additions(
    tensors: Sequence[Array], numberings: Sequence[Numbering], cell: int, order: Order | str,
    ring: Ring | str,
) -> Carrier:
    """The sum of a tensor of each replica, flat, by one operation of a device after the other."""
    first = tensors[0]
    replicas, flat = len(tensors), [tensor.reshape(-1) for tensor in tensors]
    total: Carrier = np.empty(first.size, first.format.carrier)
    for part in parts(order, replicas, first.size, first.storage_bytes, ring):
        operands = [x[part.start : part.stop] for x in flat]
        for addition in additions(part.tree):
            pair = operands[addition.left], operands[addition.right]
            operands.append(add_at(numberings[part.chunk], cell, replicas, part, addition, *pair))
        total[part.start : part.stop] = operands[-1].carrier
    return total


def add_at(
    numbering: Numbering, cell: int, replicas: int, part: Part, addition: Addition,
    left: Array, right: Array,
) -> Array:
    """One addition of a part's tree at its address, on the numbering's device.

    numbering    of the replica whose number the part's chunk has.
    """
    origin = part.start - part.chunk * part.size
    with (
        numbering.device.naming("reduce"),
        numbering.cell(Region.REDUCE, cell, again=part.chunk * replicas + addition.number),
        numbering.device.shard(origin),
    ):
        return numbering.device.add(_on(numbering, left), _on(numbering, right))


def check_kinds(tensors: Sequence[Array], wanted: int) -> None:
    """Refuse what is no tensor of each of so many replicas."""
    if not tensors or len(tensors) != wanted:
        raise ValueError(
            f"{len(tensors)} tensors and {wanted} numberings; give one of each for every replica"
        )
    kinds = {(tensor.format.name, tensor.shape) for tensor in tensors}
    if len(kinds) > 1:
        shown = ", ".join(f"{name} {shape}" for name, shape in sorted(kinds))
        raise ValueError(f"tensors of the replicas are {shown}; give one format and one shape")


def _on(numbering: Numbering, x: Array) -> Array:
    """The values on that numbering's device."""
    return Array(x.carrier, numbering.device.context(x.format))
