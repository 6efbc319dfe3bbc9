"""Sharding of the optimiser's state: each replica updates its chunk of a variable, then all gather.

A shard is a variable of the whole one's name whose elements know their place in it, so elementwise
rules draw the random bits of the whole update and give its bits.

Source    Graphcore's TensorFlow, replicated_optimizer_state_sharding; Rajbhandari et al. 2020
          (ZeRO).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fpsim.array import Array
from ipu.learn.optim import Pairs
from ipu.learn.variables import Variable
from ipu.learn.worker import Worker
from ipu.plan.orders import chunks
from ipu.plan.plan import Plan

__all__ = ["Shards", "gathered_slots", "shards_of", "write_back"]

Slots = dict[str, tuple[Array, ...]]


@dataclass
class Shards:
    """What one replica updates.

    pairs      gradients with their variables, or the replica's chunk of both.
    slots      the optimiser's memory of these.
    chunks     of the variables that are sharded, by name.
    """

    pairs: list[tuple[Array, Variable]]
    slots: Slots
    chunks: dict[str, Variable]


def shards_of(worker: Worker, pairs: Pairs, replica: int, plan: Plan) -> Shards:
    """A replica's chunk of every variable that the plan shards; the others as they are."""
    shards = Shards([], dict(worker.slots), {})
    for gradient, variable in pairs:
        if not plan.is_sharded(gradient.size):
            shards.pairs.append((gradient, variable))
            continue
        start, stop = chunks(gradient.size, plan.replicas)[replica]
        chunk = Variable(_chunk(variable.array, start, stop), worker.device, variable.name)
        chunk.first = start
        shards.chunks[variable.name] = chunk
        shards.pairs.append((_chunk(gradient, start, stop), chunk))
        slots = worker.slots.get(variable.name)
        if slots is not None:
            shards.slots[variable.name] = tuple(
                _chunk(slot, start, stop) if _is_like(slot, variable) else slot for slot in slots
            )
    return shards


def _is_like(slot: object, variable: Variable) -> bool:
    """Whether a slot has an element for each of those of a variable, or of its shard."""
    return isinstance(slot, Array) and slot.shape == variable.shape and slot.ndim > 0


def _chunk(x: Array, start: int, stop: int) -> Array:
    return Array(x.carrier.reshape(-1)[start:stop].copy(), x.context)


def write_back(workers: Sequence[Worker], shards: Sequence[Shards]) -> None:
    """Every replica gathers the chunks of its variables."""
    for name in shards[0].chunks:
        chunk_of = [shard.chunks[name].array for shard in shards]
        for worker in workers:
            variable = worker.variables[name]
            variable.assign(_joined(chunk_of, variable, worker))


def gathered_slots(
    workers: Sequence[Worker],
    shards: Sequence[Shards],
    after: Sequence[Slots],
) -> list[Slots]:
    """The slots of every replica, whole."""
    whole: list[Slots] = []
    for worker, shard, slots_after in zip(workers, shards, after, strict=True):
        slots = dict(slots_after)
        for name, chunk in shard.chunks.items():
            if name not in slots_after:
                continue
            variable = worker.variables[name]
            slots[name] = tuple(
                _joined([parts[name][i] for parts in after], variable, worker)
                if _is_like(slot, chunk) else slot
                for i, slot in enumerate(slots_after[name])
            )
        whole.append(slots)
    return whole


def _joined(chunk_of: Sequence[Array], variable: Variable, worker: Worker) -> Array:
    """The chunks as one array of the variable's shape on that worker's device."""
    flat = np.concatenate([chunk.carrier for chunk in chunk_of])
    context = worker.device.context(chunk_of[0].format)
    return context.wrap(flat.reshape(variable.shape), copy=False)
