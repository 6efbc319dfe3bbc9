"""Gradients of one update: accumulated over micro-batches, summed over replicas.

A micro-batch's gradient of a parameter is added when it is complete, in the order of the
micro-batches. Mean: Post divides when the optimiser starts, Running keeps the mean so far;
replicas are summed, and 1/R is a factor of the loss's gradient.

Source    PopART, sgd.hpp and sessionoptions.hpp (MeanReductionStrategy); docs/semantics.md §2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from ipu.frontends.poptorch.engine.machine import PoptorchMachine
from ipu.frontends.torch.values import FORMATS
from ipu.learn.accumulate import Accumulation, Reduction, added
from ipu.learn.address import Numbering
from ipu.machine.device import Device
from ipu.plan.collectives import reduce_sum
from ipu.plan.orders import Order
from ipu.run.account import counted_name
from ipu.run.places import Place

__all__ = ["MicroBatchGradients", "ReplicaAdditions", "as_array", "format_of", "twin"]


def format_of(dtype: torch.dtype) -> Format:
    """The format of an accumulator or slot of that type."""
    return FORMATS.get(dtype, BINARY32)


def as_array(machine: PoptorchMachine, x: torch.Tensor, otherwise: Format = BINARY32) -> Array:
    """A tensor in the format that it holds; that is no operation of the machine."""
    memory = machine.session.memory
    with _disable_current_modes():
        return memory.read(x, memory.format_of(x) or otherwise)


def twin(device: Device) -> Device:
    """Another device under the same rules, which counts into the same table."""
    other = device.twin()
    other.counts = device.counts
    return other


class ReplicaAdditions:
    """Sums over replicas: additions are numbered as those of `ipu.plan`."""

    def __init__(self, machine: PoptorchMachine, count: int) -> None:
        self._machine = machine
        device = machine.device
        self._numberings = [] if count == 1 else [
            Numbering(twin(device), r) for r in range(count)
        ]

    def sum(self, gradients: Sequence[Array], variable: int, order: Order | str) -> Array:
        """The sum of a parameter's gradient on every replica, on the model's device."""
        if len(gradients) == 1:
            return gradients[0]
        device = self._machine.device
        for numbering in self._numberings:
            numbering.step = self._machine.session.step
            numbering.device.control = device.control
        total = reduce_sum(gradients, self._numberings, variable, order)
        for numbering in self._numberings:
            device.status_word |= numbering.device.status_word
        return Array(total.carrier, device.context(total.format))


class MicroBatchGradients:
    """What an update's micro-batches leave.

    names    of the parameters, in the order of their numbers.
    types    of the accumulators.
    starts   of accumulators that begin with another value than zero.
    """

    def __init__(
        self, machine: PoptorchMachine, count: int, replicas: int, how: Reduction,
        types: dict[int, torch.dtype],
    ) -> None:
        self._machine, self._count, self._replicas = machine, count, replicas
        self._accumulation = Accumulation(count, how)
        self._types = types
        self._sums: list[dict[int, Array]] = [{} for _ in range(replicas)]

    def add(
        self, replica: int, micro_batch: int, name: str, parameter: torch.Tensor,
        gradient: torch.Tensor, *, start: Array | None = None, share: float = 1.0,
    ) -> None:
        """A micro-batch's gradient of a parameter.

        start    of the accumulator, for a combined one; share: factor of the gradient there.
        """
        session, key = self._machine.session, id(parameter)
        with self._machine.device.naming(counted_name(name, "accumulate")):
            value = as_array(self._machine, gradient)
            number = self._machine.first_replica + replica
            place = Place(session.step, micro_batch, number, f"{name}/accumulate", "backward")
            session.clock.place = place
            if self._count == 1 and start is None:
                self._sums[replica][key] = value
                return
            decay, factor = self._accumulation.factors(micro_batch)
            before = self._sums[replica].get(key)
            if before is None:
                fmt = format_of(self._types[key])
                zeros = self._machine.device.zeros(value.shape, fmt)
                before = zeros if start is None else start
            self._sums[replica][key] = added(
                before, self._machine.device, [value], decay, factor * share
            )

    def of(self, parameter: torch.Tensor) -> list[Array]:
        """A parameter's accumulated gradient on each replica; none if the loss has none."""
        key = id(parameter)
        return [sums[key] for sums in self._sums if key in sums]

    def __contains__(self, parameter: Any) -> bool:
        return id(parameter) in self._sums[0]
