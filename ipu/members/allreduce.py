"""All-reduce over processes: execution's trees, with every addition placed on one of them.

A tree's leaves lie where their replicas are computed. `ring` places an addition where its right
operand is, so a chunk travels along the ring; it serves folds of large chunks. `gather` places it
where the chunk's own replica is, or where both operands already are. Both send 2(R-1)/R of a tensor
from each of R processes when each has one replica, and both give the bits of one process: only the
place of an addition differs, never its operands, format or address.

Values go through their tree level by level, all tensors of a step together: first what was computed
is sent, then what is awaited is received. Both sides go through the values in the same order, so
messages between two processes need no numbers to be told apart.

Source    `ipu.plan.orders`, `ipu.plan.collectives`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fpsim.array import Array
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.records.formats import Format
from ipu.learn.address import Numbering
from ipu.members.channel import Channel
from ipu.members.pieces import Label
from ipu.plan.collectives import Summands, add_at, check_kinds
from ipu.plan.orders import (
    Addition,
    Order,
    Part,
    Ring,
    additions,
    automatic,
    chunks,
    parts,
)

__all__ = ["SMALL", "all_reduce", "method"]

#: Bytes of a chunk below which all parts go to its home at once.
SMALL = 1 << 16

_FOLDS = (
    Order.TF_RING,
    Order.CLOCKWISE_RING,
    Order.ANTICLOCKWISE_RING,
    Order.BIDIRECTIONAL_RING_PAIR,
)


class Value(NamedTuple):
    """A leaf or an addition of a part's tree, in its place.

    level       0 for leaves, else one more than the larger of its operands'.
    home        the process that has it.
    needed      the process that adds it to another one, or nobody for the sum.
    """

    level: int
    home: int
    needed: int | None


def method(order: Order | str, n: int, n_bytes: int, replicas: int) -> str:
    """How a tensor is summed: ring or gather.

    n, n_bytes    elements of the tensor and its bytes.

    >>> method("tf_ring", 1 << 20, 1 << 21, 4), method("tree", 1 << 20, 1 << 21, 4)
    ('ring', 'gather')
    """
    order = Order.parse(order)
    if order is Order.AUTO:
        order = automatic(n_bytes, replicas)
    first, last = chunks(n, replicas)[0]
    large = (last - first) * (n_bytes // max(n, 1)) >= SMALL
    return "ring" if order in _FOLDS and large else "gather"


def placed(part: Part, how: str, owners: Sequence[int]) -> list[Value]:
    """The values of a part's tree in their places.

    owners    the process of each replica.
    """
    replicas = len(owners)
    steps = additions(part.tree)
    levels, homes = [0] * replicas, list(owners)
    needed: list[int | None] = [None] * (replicas + len(steps))
    for step in steps:
        left, right = step.left, step.right
        stays = homes[left] == homes[right] or how == "ring"
        home = homes[right] if stays else owners[part.chunk]
        needed[left] = needed[right] = home
        homes.append(home)
        levels.append(1 + max(levels[left], levels[right]))
    return [Value(*row) for row in zip(levels, homes, needed, strict=True)]


@dataclass
class _Work:
    """A part of a tensor on its way to the sum.

    values       in their places; operands: those that are here, by number.
    """

    tensor: str
    fmt: Format
    cell: int
    collective: int
    number: int
    part: Part
    values: list[Value]
    additions: tuple[Addition, ...]
    operands: dict[int, Array] = field(default_factory=dict)

    @property
    def top(self) -> int:
        return len(self.values) - 1


def all_reduce(
    channel: Channel, owners: Sequence[int], jobs: Sequence[Summands],
    numberings: Mapping[int, Numbering], order: Order | str, ring: Ring | str = Ring.FLAT,
) -> list[Array]:
    """The sum of each tensor over all replicas, on the device of this process's first one.

    owners       the process of each replica.
    jobs         tensors of the replicas of this process.
    numberings   of every replica; those of other processes are stand-ins.

    Shapes    equal on all replicas; the results have them.
    Rounding  each addition once in the tensors' format, in the order of the chunk's tree.
    Raises    StoppedError where a worker is gone or sends anything else than is expected.
    """
    replicas = [replica for replica, owner in enumerate(owners) if owner == channel.rank]
    works = [work for job in jobs for work in _works(channel, owners, replicas, job, order, ring)]
    run = _Pass(channel, len(owners), numberings)
    for level in range(1 + max((work.values[-1].level for work in works), default=0)):
        for work in works:
            run.compute(work, level)
        for work in works:
            run.send(work, level)
        for work in works:
            run.receive(work, level)
    by_collective: dict[int, list[_Work]] = {}
    for work in works:
        by_collective.setdefault(work.collective, []).append(work)
    rows = iter(by_collective.values())
    return [_joined(job, next(rows) if job.tensors[0].size else [], numberings[replicas[0]])
            for job in jobs]


def _works(
    channel: Channel, owners: Sequence[int], here: Sequence[int], job: Summands,
    order: Order | str, ring: Ring | str,
) -> list[_Work]:
    check_kinds(job.tensors, len(here))
    collective, first, replicas = channel.begin(), job.tensors[0], len(owners)
    how = method(order, first.size, first.storage_bytes, replicas)
    flat = [tensor.reshape(-1) for tensor in job.tensors]
    works = []
    for number, part in enumerate(parts(order, replicas, first.size, first.storage_bytes, ring)):
        work = _Work(
            job.name or f"tensor {job.cell}", first.format, job.cell, collective, number, part,
            placed(part, how, owners), additions(part.tree),
        )
        for replica, tensor in zip(here, flat, strict=True):
            work.operands[replica] = tensor[part.start : part.stop]
        works.append(work)
    return works


class _Pass:
    """One pass over the levels of all trees."""

    def __init__(
        self, channel: Channel, replicas: int, numberings: Mapping[int, Numbering]
    ) -> None:
        self.channel = channel
        self.replicas = replicas
        self.numberings = numberings

    def compute(self, work: _Work, level: int) -> None:
        """The additions of this level whose home is here."""
        for step in work.additions:
            value = work.values[self.replicas + step.number]
            if value.level != level or value.home != self.channel.rank:
                continue
            left, right = work.operands.pop(step.left), work.operands.pop(step.right)
            numbering = self.numberings[work.part.chunk]
            work.operands[self.replicas + step.number] = add_at(
                numbering, work.cell, self.replicas, work.part, step, left, right
            )

    def send(self, work: _Work, level: int) -> None:
        """The values of this level that others need; the sum is needed by all."""
        here = self.channel.rank
        for number, value in enumerate(work.values):
            if value.level != level or value.home != here:
                continue
            others = self.channel.others if number == work.top else [value.needed]
            targets = [other for other in others if other is not None and other != here]
            if targets:
                x = work.operands[number]
                codes = to_codes(x.carrier, work.fmt).astype(_wire(work.fmt), copy=False)
                payload = codes.view(np.uint8).data
                for other in targets:
                    self.channel.send(other, self._label(work, number), payload)

    def receive(self, work: _Work, level: int) -> None:
        """The values of this level that are needed here."""
        here = self.channel.rank
        for number, value in enumerate(work.values):
            awaited = number == work.top or value.needed == here
            if value.level != level or value.home == here or not awaited:
                continue
            wire = _wire(work.fmt)
            label, of = self._label(work, number), f"the gradient of {work.tensor}"
            payload = self.channel.receive(value.home, label, wire.itemsize, of)
            codes = np.frombuffer(payload, wire).astype(work.fmt.code_dtype, copy=False)
            device = self.numberings[work.part.chunk].device
            carrier = from_codes(codes, work.fmt)
            work.operands[number] = Array(carrier, device.context(work.fmt))

    def _label(self, work: _Work, number: int) -> Label:
        size = work.part.stop - work.part.start
        step = self.channel.step
        return Label(work.fmt.name, size, step, work.collective, work.number, number)


def _wire(fmt: Format) -> np.dtype[np.unsignedinteger]:
    """Codes as they are sent: little-endian."""
    return np.dtype(fmt.code_dtype).newbyteorder("<")


def _joined(job: Summands, works: Sequence[_Work], numbering: Numbering) -> Array:
    """The sums of all parts as one tensor."""
    first = job.tensors[0]
    total = np.empty(first.size, first.format.carrier)
    for work in works:
        total[work.part.start : work.part.stop] = work.operands[work.top].carrier
    context = numbering.device.context(first.format)
    return Array(total.reshape(first.shape), context)
