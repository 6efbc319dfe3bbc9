"""Collectives: tensors of several replicas summed in a declared order.

Every addition is one operation of a device, in the format of the tensors: of the replica whose
number its chunk has, in the cell of the variable, so all replicas receive the same bits.

Source    `ipu.parallel.orders`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fpsim.array import Array
from ipu.learn.address import Numbering, Region
from ipu.parallel.orders import Order, Ring, additions, parts

__all__ = ["reduce_sum"]


def reduce_sum(
    tensors: Sequence[Array], numberings: Sequence[Numbering], cell: int,
    order: Order | str = Order.AUTO, ring: Ring | str = Ring.FLAT,
) -> Array:  # fmt: skip
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
    _check(tensors, numberings)
    first = tensors[0]
    replicas, flat = len(tensors), [tensor.reshape(-1) for tensor in tensors]
    total = np.empty(first.size, first.format.carrier)
    for part in parts(order, replicas, first.size, first.nbytes, ring):
        numbering = numberings[part.chunk]
        origin = part.start - part.chunk * -(-first.size // replicas)
        operands = [_on(numbering, x[part.start : part.stop]) for x in flat]
        base = part.chunk * replicas
        with numbering.device.naming("reduce"):
            for addition in additions(part.tree):
                left, right = operands[addition.left], operands[addition.right]
                with (
                    numbering.cell(Region.REDUCE, cell, again=base + addition.number),
                    numbering.device.shard(origin),
                ):
                    operands.append(numbering.device.add(left, right))
        total[part.start : part.stop] = operands[-1].carrier
    return numberings[0].device.context(first.format).wrap(total.reshape(first.shape), copy=False)


def _check(tensors: Sequence[Array], numberings: Sequence[Numbering]) -> None:
    """Refuse what is no tensor of each replica."""
    if not tensors or len(tensors) != len(numberings):
        raise ValueError(
            f"{len(tensors)} tensors and {len(numberings)} numberings; give one of each for every "
            "replica"
        )
    kinds = {(tensor.format.name, tensor.shape) for tensor in tensors}
    if len(kinds) > 1:
        shown = ", ".join(f"{name} {shape}" for name, shape in sorted(kinds))
        raise ValueError(f"tensors of the replicas are {shown}; give one format and one shape")


def _on(numbering: Numbering, x: Array) -> Array:
    """The values on that numbering's device."""
    return numbering.device.context(x.format).wrap(x.carrier)
