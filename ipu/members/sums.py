"""Sums over the replicas of several processes, for programs that have no Trainer of ours.

A front end whose framework owns the training loop sums tensors by the trees and addresses that a
plan's training has: what it computes does not depend on the number of processes.

Source    `ipu.members.allreduce`, docs/semantics.md §2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fpsim.array import Array
from ipu.learn.address import Numbering, Region
from ipu.machine.device import Device
from ipu.members.allreduce import all_reduce
from ipu.members.channel import Channel
from ipu.plan.collectives import Summands
from ipu.plan.orders import Order, check_order

__all__ = ["ReplicaSums"]


class ReplicaSums:
    """Sums over R replicas, of which each process has R/P consecutive ones.

    device    makes a device; every replica adds its chunks on one of its own.
    order     of the additions.

    >>> from fpsim import BINARY16
    >>> from ipu.members.local_transport import run_local
    >>> def work(transport):
    ...     sums = ReplicaSums(Channel(transport), 2, Device)
    ...     own = Device().from_host([1.0, transport.rank], BINARY16)
    ...     return sums.of([Summands([own], 0)], step=0)[0].values.tolist()
    >>> run_local(2, work)
    [[2.0, 1.0], [2.0, 1.0]]
    """

    def __init__(
        self, channel: Channel, replicas: int, device: Callable[[], Device],
        order: Order | str = Order.AUTO,
    ) -> None:
        self.channel = channel
        self.replicas = replicas
        self.order = check_order(order, replicas)
        share = replicas // channel.size
        self._owners = [replica // share for replica in range(replicas)]
        self._numberings = {replica: Numbering(device(), replica) for replica in range(replicas)}

    @property
    def devices(self) -> list[Device]:
        """Those that this process adds on, of every replica."""
        return [numbering.device for numbering in self._numberings.values()]

    @property
    def first(self) -> int:
        """The first replica of this process."""
        return self._owners.index(self.channel.rank)

    def of(self, jobs: Sequence[Summands], step: int) -> list[Array]:
        """The sum of each tensor over all replicas, equal on all processes.

        step    t of the additions' addresses.

        Rounding  each addition once in the tensors' format, in the order of the chunk's tree.
        Raises    StoppedError where another process is gone.
        """
        self.channel.step = step
        for numbering in self._numberings.values():
            numbering.step = step
        return all_reduce(self.channel, self._owners, jobs, self._numberings, self.order)

    def means(self, jobs: Sequence[Summands], step: int) -> list[Array]:
        """The mean of each tensor over all replicas, as a plan's training has it.

        Rounding  as `of`, then one multiplication by fl(1/R).
        """
        numbering = self._numberings[self.first]
        means = []
        for job, total in zip(jobs, self.of(jobs, step), strict=True):
            with numbering.cell(Region.UPDATE, job.cell, again=0):
                means.append(numbering.device.multiply(total, 1 / self.replicas))
        return means
